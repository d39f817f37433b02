// Memory for messages that are on their way, used again and again.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/queue.h"

namespace skein::sim {

// Not thread-safe. On a device everything is in the order of `queue`, where what was put before
// still finds memory that has been given back.
class Buffers {
 public:
  // Null: only memory of the host is copied.
  explicit Buffers(Queue* queue) : queue_(queue) {}

  // What `source`, on the host or on the queue's device, holds now, in memory of the same kind:
  // its first source.bytes() bytes.
  std::unique_ptr<Memory> copy_of(Span source);
  void give_back(std::unique_ptr<Memory> memory);

 private:
  // By what they hold, in memory of the host and of the device.
  using Sizes = std::map<std::size_t, std::vector<std::unique_ptr<Memory>>>;

  Queue* queue_;
  Sizes of_host_, of_device_;
};

}  // namespace skein::sim

// The order of a fabric's collectives: on each channel they run one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/task.h"
#include "fabric/operation.h"

namespace skein {

class Fabric;

// One that fails or is cancelled breaks its channel: later ones on it throw IoError.
class Turns {
 public:
  explicit Turns(Fabric& fabric);
  ~Turns();

  // The next collective on a channel.
  Operation begin(const char* name, Channel channel, Limit limit);

  // Runs `body` when the collectives before it have ended, or let it begin.
  Task<> run(Operation operation, Task<> body);

  // Lets the collective after this one begin before this one has ended.
  void next_may_begin(const Operation& operation);

 private:
  struct Queue;

  Queue& queue(Channel channel);

  Fabric& fabric_;
  std::vector<std::unique_ptr<Queue>> queues_;  // by channel
};

}  // namespace skein

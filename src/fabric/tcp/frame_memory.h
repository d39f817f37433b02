// Memory for frames that wait for their receiver. What is given back is used again: fresh memory
// costs more than what is copied there, since the system clears it page by page.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "fabric/tcp/boxes.h"
#include "fabric/tcp/frame.h"

namespace skein::tcp {

class FrameMemory {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  // At least `bytes` of it, which a frame may have; less than twice as much.
  Buffer take(std::size_t bytes) {
    if (!whole(bytes)) return std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kMostOfAFrame);
    Buffer out = std::move(free_.back());
    free_.pop_back();
    return out;
  }

  // What was taken for so many bytes. At most a window of it is kept.
  void give_back(Buffer buffer, std::size_t bytes) {
    if (whole(bytes) && free_.size() < kWindow / kMostOfAFrame) free_.push_back(std::move(buffer));
  }

 private:
  static bool whole(std::size_t bytes) { return bytes > kMostOfAFrame / 2; }

  std::vector<Buffer> free_;  // of a whole frame each
};

}  // namespace skein::tcp

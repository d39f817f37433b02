// Memory of packets. What is given back is used again: fresh memory costs more than what is copied
// there, since the system clears it page by page.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "fabric/mpi/packet.h"

namespace skein::mpi {

inline constexpr std::size_t kWholePacket = sizeof(Header) + kMostOfAPacket;

class Buffers {
 public:
  using Buffer = std::unique_ptr<std::byte[]>;

  // At least `bytes` of it, which a packet may have.
  Buffer take(std::size_t bytes) {
    if (!large(bytes)) return std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(kWholePacket);
    Buffer out = std::move(free_.back());
    free_.pop_back();
    return out;
  }

  // What was taken for so many bytes.
  void give_back(Buffer buffer, std::size_t bytes) {
    constexpr std::size_t kMostFree = 32;
    if (large(bytes) && free_.size() < kMostFree) free_.push_back(std::move(buffer));
  }

 private:
  static bool large(std::size_t bytes) { return bytes > kWholePacket / 4; }

  std::vector<Buffer> free_;  // of a whole packet each
};

}  // namespace skein::mpi

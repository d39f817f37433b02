// What travels between two ranks: packets, each one message of MPI. They are taken in in the order
// in which they were sent. All ranks have the same byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::mpi {

enum class Kind : std::uint32_t {
  data,       // a part of a message of `total` bytes, from `value` on
  taken,      // the receiver of a channel has let go of `total` bytes so far
  refused,    // it takes nothing more
  withdrawn,  // the sender of a channel sends nothing more
  failed,     // the rank is about to end; why, as text
  left,       // it has left the run; nothing comes after this
  ask,        // for a sign of progress; `value` is the time of who asks
  answer      // `value` as it was asked with, `total` the age of the last sign
};

struct Header {
  Kind kind = Kind::data;
  std::uint32_t channel = 0;
  std::uint64_t total = 0;
  std::uint64_t value = 0;
  std::uint64_t sequence = 0;  // of this packet between the two ranks
};

// Large enough that MPI's own handshake for it counts little, small enough to stay in the cache
// between its copies.
inline constexpr std::size_t kMostOfAPacket = 256 << 10;
inline constexpr std::size_t kWholePacket = sizeof(Header) + kMostOfAPacket;

inline constexpr std::size_t kMostOfAText = 4000;

}  // namespace skein::mpi

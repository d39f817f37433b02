// What a fabric promises and asks for beyond what all of them do.
#pragma once

#include <cstddef>

namespace skein {

// Workers of one host; whoever starts or joins them refuses more.
inline constexpr int kMostWorkersOfAHost = 256;

// Into what pieces a ring cuts the part that a rank sends on: pieces follow each other, so that the
// next rank need not wait for the whole.
struct Chunking {
  // Small enough that a piece's transfer hides the wake-up of the next rank, large enough that
  // there are few of them.
  std::size_t least = 16384;  // elements of a piece
  std::size_t most = 16;      // pieces of a part
  // Messages to different ranks that are under way at once where each rank sends to each: enough
  // that the next one leaves while the peer has yet to take the last.
  std::size_t ahead = 2;
};

struct Traits {
  // Part p of a sum is added in the order p+1, p+2, …, p: the bits of every other such fabric.
  bool ring_order = true;
  // Sums on devices are added in an order of the fabric's own: the same on all ranks and in every
  // run, but with other bits than anywhere else.
  bool own_order = false;
  // When a peer is lost the other ranks go on with messages among themselves.
  bool survives_losses = true;
  // Workers must compute on devices.
  bool devices_only = false;
  Chunking chunking = {};
};

}  // namespace skein

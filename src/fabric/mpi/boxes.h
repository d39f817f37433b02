// What is sent to a rank on one channel, and what is received from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/loop.h"
#include "core/span.h"
#include "fabric/fabric.h"
#include "fabric/mpi/buffers.h"

namespace skein::mpi {

// How far a sender may be ahead of the receiver on a channel.
inline constexpr std::uint64_t kWindow = 4 << 20;
inline constexpr std::uint64_t kMessageCost = 64;  // what a message counts beside its bytes

struct Outbox {
  Outbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  struct Message {
    const std::byte* data;  // what has not left yet
    std::size_t left, total;
    std::unique_ptr<std::byte[]> own;  // where `data` is, once its owner has gone
  };

  std::size_t waiting() const { return messages.size(); }
  bool let_go(std::uint64_t of) const { return messages.empty() || departed >= of; }

  const Channel channel;
  std::deque<Message> messages;           // that have not left
  std::uint64_t departed = 0;             // how many have
  std::uint64_t spent = 0, returned = 0;  // bytes that left, and of those, that were let go
  bool in_turn = false;                   // waits for its turn to leave
  bool refused = false;                   // by the peer: it takes nothing more
  bool dropped = false;                   // some of it will never arrive
  bool closed = false;                    // by this side
  Signal moved;
};

struct Inbox {
  Inbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  struct Piece {
    Buffers::Buffer bytes;
    std::size_t length;
  };

  // A message of which something has come.
  struct Arrival {
    std::uint64_t total;
    std::uint64_t come = 0;     // bytes of it
    std::uint64_t settled = 0;  // of these, that are where they belong
    std::vector<Piece> pieces;  // the rest
    bool complete() const { return settled == total; }
  };

  // Where the first message is to go, and what is done with it there.
  struct Receive {
    Span into;
    Combine combine;
  };

  bool knows_first() const { return !arrivals.empty(); }
  bool exhausted() const { return withdrawn; }

  const Channel channel;
  std::deque<Arrival> arrivals;
  const Receive* receive = nullptr;
  std::uint64_t taken = 0, told = 0;  // bytes that were let go, and as the peer knows
  bool withdrawn = false;             // by the peer: nothing more comes
  bool closed = false;                // by this side
  Signal moved;
};

}  // namespace skein::mpi

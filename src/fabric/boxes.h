// What is sent to a peer on one channel, and what is received from it, where messages are cut into
// parts: the boxes of `tcp` and `mpi`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/loop.h"
#include "core/span.h"
#include "fabric/operation.h"

namespace skein::boxed {

// How far a sender may be ahead of the receiver on a channel, in bytes.
inline constexpr std::uint64_t kWindow = 4 << 20;
inline constexpr std::uint64_t kMessageCost = 64;  // what a message counts beside its bytes

struct Outbox {
  Outbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  struct Message {
    const std::byte* data;  // what has not left yet
    std::size_t left, total;
    std::uint32_t number;
    std::unique_ptr<std::byte[]> own;  // where `data` is, once its owner has gone
    std::size_t parts = 0;             // that have left and lie where they were sent from
    bool departed = false;             // the last part has left
  };

  // Messages that have yet to leave.
  std::size_t waiting() const { return messages.size() - departed; }

  // Whether the memory of the first so many messages is in use no more. Numbers begin anew.
  bool let_go(std::uint64_t of) const {
    const auto last = static_cast<std::uint32_t>(of) - 1;
    return messages.empty() || static_cast<std::int32_t>(messages.front().number - last) > 0;
  }

  const Channel channel;
  std::deque<Message> messages;  // whose memory is in use
  std::size_t departed = 0;      // how many of them have left
  std::uint32_t next = 0;
  std::uint64_t spent = 0, returned = 0;  // bytes that left, and of those, that were taken
  bool in_turn = false;                   // waits for its turn to leave
  bool refused = false;                   // by the peer: it takes nothing more
  bool dropped = false;                   // some of it will never arrive
  bool closed = false;                    // by this side
  Signal moved;
};

struct Inbox {
  Inbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  // A part of a message that waits for its receiver.
  struct Piece {
    std::uint64_t offset;
    std::size_t length;
    std::unique_ptr<std::byte[]> bytes;
  };

  // A message of which something has come, or of a later one.
  struct Arrival {
    bool known = false;  // its size is
    std::uint64_t total = 0;
    std::uint64_t settled = 0;  // bytes that are where they belong
    std::uint64_t waiting = 0;  // that lie in `pieces`
    std::uint64_t coming = 0;   // of parts that come now
    std::vector<Piece> pieces;
    bool all_there() const { return known && settled + waiting == total; }
    bool complete() const { return known && settled == total; }
  };

  // Where the first message is to go, and what is done with it there.
  struct Receive {
    Span into;
    Combine combine;

    // Puts a part of the message there.
    void put(std::uint64_t offset, const std::byte* bytes, std::size_t length) const;
  };

  // Something has come of the next message, and its size with it.
  bool knows_first() const { return !arrivals.empty() && arrivals.front().known; }

  // Nothing more will come.
  bool exhausted() const { return withdrawn && come >= last; }

  const Channel channel;
  std::deque<Arrival> arrivals;
  std::uint32_t first = 0;  // number of the first of them
  const Receive* receive = nullptr;
  std::uint64_t come = 0, coming = 0;  // bytes of parts that have come, and that come now
  std::uint64_t taken = 0, told = 0;   // that were let go, and as the peer knows
  std::uint64_t last = 0;              // all that comes, once it was withdrawn
  bool withdrawn = false;              // by the peer: nothing more comes
  bool closed = false;                 // by this side
  Signal moved;
};

}  // namespace skein::boxed

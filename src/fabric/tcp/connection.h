// The frames to and from one peer.
//
// What is posted is written straight from the sender's memory. What arrives goes straight to the
// receiver's, when that is known by then. Else it waits here: a sender is never further ahead of
// the receiver than kWindow bytes on a channel, so no more than that waits.
//
// Not thread-safe: only what drives the loop calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/loop.h"
#include "core/span.h"
#include "fabric/fabric.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/pulse.h"
#include "fabric/tcp/signs.h"
#include "fabric/tcp/stream.h"

namespace skein::tcp {

inline constexpr std::uint64_t kWindow = 4 << 20;
inline constexpr std::uint64_t kMessageCost = 64;  // what a message counts beside its bytes

// What is sent on one channel.
struct Outbox {
  Outbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  struct Message {
    const std::byte* data;  // what has not left yet
    std::size_t left, total;
    std::uint32_t number;
    std::unique_ptr<std::byte[]> own;  // where `data` is, once its owner has gone
  };

  const Channel channel;
  std::deque<Message> messages;  // that have not been written whole
  std::uint32_t next = 0;
  std::uint64_t spent = 0, returned = 0;  // bytes that left, and of those, that were taken
  bool in_turn = false;                   // waits for its turn to be written
  bool refused = false;                   // by the peer: it takes nothing more
  bool dropped = false;                   // some of it was never written
  bool closed = false;                    // by this side
  Signal moved;
};

// What is received on one channel.
struct Inbox {
  Inbox(Loop& loop, Channel its_channel) : channel(its_channel), moved(loop) {}

  struct Arrival {
    std::uint64_t total = 0, begun = 0;      // bytes of the message, and that have been announced
    std::uint64_t waiting = 0, settled = 0;  // that lie in `staged`, and that have left it
    std::uint64_t direct = 0;                // that went where they belong at once
    std::unique_ptr<std::byte[]> staged;
    bool complete() const { return settled + direct == total; }
  };

  // Where the first message is to go, and what is done with it there.
  struct Receive {
    Span into;
    Combine combine;
  };

  const Channel channel;
  std::deque<Arrival> arrivals;
  const Receive* receive = nullptr;
  std::uint32_t next = 0;
  std::uint64_t begun = 0, taken = 0, told = 0;  // bytes that came, were let go, as the peer knows
  bool withdrawn = false;                        // by the peer: nothing more comes
  bool closed = false;                           // by this side
  Signal moved;
};

class Connection {
 public:
  // `least_silence`: Pulse says what for.
  Connection(Loop& loop, std::unique_ptr<Stream> stream, Signs& signs,
             Duration least_silence = kLeastSilence);

  Outbox& outbox(Channel channel);
  Inbox& inbox(Channel channel);

  // Puts a message on its way; its memory must stay until it has left `box.messages`.
  void post(Outbox& box, Span data);

  // The memory of what has been posted goes away: copies what has not been written.
  void keep_messages(Outbox& box);

  // Forgets what has not been written, but for the frame that has been begun, and tells the peer.
  void close(Outbox& box);

  // From now on the first message of `box` goes to `receive`, which outlives that, until stop().
  // When a part of it has arrived by then, the box is closed: nobody can have the whole any more.
  void start(Inbox& box, const Inbox::Receive& receive);
  void stop(Inbox& box);
  void close(Inbox& box);

  // Drops the first message, which is complete; its receive has ended.
  void pop(Inbox& box);

  void fail(const std::string& reason);

  // Asks for a sign of progress.
  void ask();

  // To be called every kBeatEvery: sends a heartbeat, and loses a peer of whom nothing has come for
  // too long.
  void beat();

  // When the peer last showed progress, as far as this worker knows. Passed on to those who wait
  // for this worker as long as it waits for the peer.
  Time sign() const { return sign_; }
  void await(bool begins) { awaited_ += begins ? 1 : -1; }

  // Why the peer will never answer, or empty; what it said it failed of.
  std::string trouble() const;
  const std::string& failure() const { return failure_; }
  bool lost() const { return !lost_.empty(); }

  // Says goodbye. Then, whether the peer's system has all that was sent: call it until it is so.
  void leave();
  bool gone();

 private:
  enum class Body : std::uint8_t { none, direct, added, staged, discarded, text };

  // A frame, or several small ones, on their way out.
  struct Departure {
    std::vector<std::byte> small;  // headers, texts
    const std::byte* body = nullptr;
    std::size_t length = 0, at = 0;    // of the body; written of both
    Outbox* box = nullptr;             // whose message it is a part of
    std::unique_ptr<std::byte[]> own;  // where `body` is, once its owner has gone
  };

  void ready();
  void send();
  bool next_departure();
  void departed();
  void queue(Outbox& box);
  void forget_messages(Outbox& box);
  void tell(const Frame& frame);

  void receive();
  bool begin_body();
  bool begin_data(Inbox& box);
  std::size_t read_body();
  void end_body();
  void settle(Inbox& box);
  void put(const Inbox::Receive& receive, std::uint64_t offset, std::byte* bytes,
           std::size_t length);
  void let_go(Inbox& box, std::uint64_t bytes);
  void hear();
  void lose(const std::string& reason);

  Loop& loop_;
  std::unique_ptr<Stream> stream_;
  Signs& signs_;
  Pulse pulse_;
  std::map<Channel, Outbox> outboxes_;
  std::map<Channel, Inbox> inboxes_;

  std::vector<std::byte> news_;  // frames without data, which go first
  std::deque<Outbox*> turns_;
  Departure departure_;
  bool departing_ = false;

  FrameBytes header_{};
  std::size_t header_got_ = 0;
  Frame frame_;
  Body body_ = Body::none;
  std::size_t body_got_ = 0;
  int hesitations_ = 0;
  Inbox* box_ = nullptr;  // of frame_, when it is data
  std::unique_ptr<std::byte[]> scratch_;

  Time sign_{};
  int awaited_ = 0;
  bool mute_ = false;  // nothing can be written any more; what has come can still be read
  std::string failure_, lost_;
  bool left_ = false;
};

}  // namespace skein::tcp

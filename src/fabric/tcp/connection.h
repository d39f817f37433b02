// The frames to and from one peer, over one stream or several.
//
// What is posted is written straight from the sender's memory. What arrives goes straight to the
// receiver's, when that is known by then. Else it waits here: a sender is never further ahead of
// the receiver than kWindow bytes on a channel, so no more than that waits.
//
// A frame takes whichever stream is free. When a stream is lost, what it carried and the peer has
// not acknowledged is sent again on another, or on the one that takes its place. So a frame may
// come several times, even on two streams at once; the first that is whole counts. And a message
// that fits a frame is copied when it leaves, and a larger one stays where it is until all of it
// was acknowledged.
//
// Not thread-safe: only what drives the loop calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/loop.h"
#include "core/span.h"
#include "fabric/boxed_peer.h"
#include "fabric/part_memory.h"
#include "fabric/tcp/frame.h"
#include "fabric/tcp/lane.h"
#include "fabric/tcp/pulse.h"
#include "fabric/tcp/stream.h"
#include "fabric/tcp/widening.h"

namespace skein::tcp {

using boxed::Inbox;
using boxed::kMessageCost;
using boxed::kWindow;
using boxed::Outbox;

struct ConnectionOptions {
  Duration least_silence = kLeastSilence;     // Pulse says what for
  std::size_t streams = 1, most_streams = 1;  // Widening does
  Duration first_silence = kLeastSilence;     // Pulse again

  // That all connections of a worker share.
  std::shared_ptr<boxed::PartMemory> memory = std::make_shared<boxed::PartMemory>(
      kMostOfAFrame, kMostOfAFrame / 2, boxed::kWindow / kMostOfAFrame);
};

class Connection final : public BoxedPeer {
 public:
  Connection(Loop& loop, std::unique_ptr<Stream> stream, Signs& signs,
             const ConnectionOptions& options = {});

  void fail(const std::string& reason) override;
  void ask() override;

  // To be called every kBeatEvery: sends a heartbeat, and loses a peer of whom nothing has come for
  // too long.
  void beat();

  // Is told of a stream that was lost, and has it replaced or calls lose(). Where there is nobody
  // to tell, the peer is lost with its stream.
  std::function<void(std::size_t lane)> on_broken;

  // Is told that so many streams would be used, and makes them. Where there is nobody to tell, the
  // peer is asked for them.
  std::function<void(std::size_t count)> on_wanted;

  // The peer will never answer, and why.
  void lose(const std::string& reason);

  // What has arrived without a gap, for the peer to go on from.
  std::uint64_t received() const { return received_; }

  // A lane that is lost or yet to come, and one that nothing is read from any more.
  Lane& lane(std::size_t index);
  std::size_t lanes() const { return lanes_.size(); }
  void break_off(Lane& lane);

  // Goes on with a new stream in that lane, to a peer that has received so many frames and reads
  // nothing more from the former one. Throws IoError when it cannot have.
  void attach(Lane& lane, std::unique_ptr<Stream> stream, std::uint64_t received);

  std::string trouble() const override;
  bool lost() const override { return !lost_.empty(); }

  // Says goodbye. Then, whether the peer has all that was sent: call it until it is so.
  void leave();
  bool gone();

 private:
  // A numbered frame that has left and was not acknowledged.
  struct Sent {
    FrameBytes header{};
    const std::byte* body = nullptr;
    std::size_t length = 0;
    std::unique_ptr<std::byte[]> own;  // where `body` is, unless it is where it was sent from
    Outbox* box = nullptr;             // of the message where `body` is
    std::uint32_t number = 0;          // of that message
    std::size_t lane = 0;
    bool again = false;  // waits to be sent again
  };
  struct Note {
    Frame frame;
    std::string text;
  };

  void ready(Lane& lane);
  void broken(Lane& lane, const std::string& reason);
  bool left() const { return left_at_ > 0 && received_ >= left_at_; }

  void say(Word word, Channel channel, std::uint64_t total) override;
  void send() override;
  void send(Lane& lane, bool takes_more);
  void measure();
  void widen();
  std::size_t up() const;
  bool next_departure(Lane& lane);
  void gather_notes(Lane& lane);
  void depart(Lane& lane, std::uint64_t sequence);
  void send_again();
  void depart_part(Lane& lane, Outbox& box);
  void number(Frame& frame, Sent sent);
  Sent& sent(std::uint64_t sequence) { return sent_[sequence - acknowledged_ - 1]; }
  void keep(std::uint64_t sequence);
  void keep_sent(Outbox& box) override;
  void tell(const Frame& frame, const std::string& text = "");
  void acknowledge(std::uint64_t received);

  void receive(Lane& lane);
  bool begin_body(Lane& lane);
  bool begin_data(Lane& lane);
  Inbox::Arrival& count(Lane& lane);
  static void take_back(Lane& lane);
  Lane* twin(const Lane& lane);
  bool has(std::uint64_t sequence) const {
    return sequence <= received_ || beyond_.count(sequence) > 0;
  }
  static std::size_t read_body(Lane& lane);
  void end_body(Lane& lane);
  void end_data(Lane& lane);
  void end_copy(Lane& lane);
  void heed(const Lane& lane);
  void mark_received(std::uint64_t sequence);
  void discard(Inbox& box) override;
  void give_back(std::unique_ptr<std::byte[]> bytes, std::size_t length) override {
    options_.memory->give_back(std::move(bytes), length);
  }

  const ConnectionOptions options_;
  Pulse pulse_;
  Widening widening_;
  std::deque<Lane> lanes_;  // the first is there from the beginning

  std::deque<Note> notes_;  // numbered frames without data, which go first
  std::optional<Frame> ask_, answer_;
  bool beat_due_ = false, acknowledgement_due_ = false, widen_due_ = false;
  std::deque<Sent> sent_;            // from acknowledged_ + 1 on
  std::deque<std::uint64_t> again_;  // what of it is sent again
  std::uint64_t acknowledged_ = 0;   // by the peer

  std::uint64_t received_ = 0;      // all up to this have arrived
  std::set<std::uint64_t> beyond_;  // and these
  std::uint64_t waited_for_ = 0;    // the last that somebody waits to be acknowledged
  std::uint64_t told_ = 0;          // what of it the peer knows
  std::uint64_t owed_ = 0;          // bytes that came since

  bool full_ = false;  // more waits than the streams take
  Time full_since_{};
  Duration full_for_{0};        // since the last heartbeat
  std::uint64_t moved_ = 0;     // bytes that left meanwhile
  std::size_t peer_wants_ = 1;  // streams

  std::uint64_t left_at_ = 0;
  std::string broken_by_, lost_;
};

}  // namespace skein::tcp

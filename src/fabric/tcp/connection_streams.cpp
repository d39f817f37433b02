// The streams of a connection: how they begin, how long silence may last, and how they end.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "fabric/tcp/connection.h"
#include "fabric/tcp/errors.h"

namespace skein::tcp {

Connection::Connection(Loop& loop, std::unique_ptr<Stream> stream, Signs& signs,
                       const ConnectionOptions& options)
    : BoxedPeer(loop, signs, kMostOfAFrame),
      options_(options),
      pulse_(loop.now(), options.least_silence, options.first_silence),
      widening_(options.streams, options.most_streams) {
  attach(lane(0), std::move(stream), 0);
}

Lane& Connection::lane(std::size_t index) {
  while (lanes_.size() <= index) lanes_.emplace_back(lanes_.size());
  return lanes_[index];
}

void Connection::attach(Lane& lane, std::unique_ptr<Stream> stream, std::uint64_t received) {
  acknowledge(std::max(received, acknowledged_));
  send_again();
  lane.begin_anew();
  lane.former.reset();
  lane.stream = std::move(stream);
  lane.begun = true;
  lane.stream->on_ready = [this, &lane] { ready(lane); };
  lane.stream->give_up_after(options_.least_silence / 2);
  lane.stream->again();  // what has come before is reported to nobody
  acknowledgement_due_ = true;
  pulse_.hear(loop().now());
}

// What was sent on streams that take nothing any more goes again, on whichever is free: nothing
// waits for the one stream to be replaced.
void Connection::send_again() {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    const Lane& lane = lanes_[sent_[i].lane];
    if (sent_[i].again || (lane.stream && !lane.mute)) continue;
    sent_[i].again = true;
    again_.push_back(acknowledged_ + 1 + i);
  }
  std::sort(again_.begin(), again_.end());
}

void Connection::break_off(Lane& lane) {
  if (!lane.stream) return;
  ::shutdown(lane.stream->socket(), SHUT_RDWR);
  lane.former = std::move(lane.stream);
  take_back(lane);
  lane.begin_anew();
}

void Connection::broken(Lane& lane, const std::string& reason) {
  if (lost()) return;
  break_off(lane);
  broken_by_ = reason;
  if (left() || !failure().empty() || !on_broken) return lose(reason);
  send_again();
  on_broken(lane.index);
}

void Connection::lose(const std::string& reason) {
  if (lost()) return;
  lost_ = reason.empty() ? "the connection ended" : reason;
  for (const Lane& lane : lanes_)
    if (lane.stream) ::shutdown(lane.stream->socket(), SHUT_RDWR);
  for (auto& [channel, each] : outboxes()) {
    each.dropped |= !each.messages.empty();
    forget_messages(each);
  }
  notify_all();
}

std::string Connection::trouble() const {
  if (!failure().empty()) return fmt::format("which failed: {}", failure());
  if (left()) return "which has left the run";
  if (lost()) return fmt::format("which was lost: {}", lost_);
  return "";
}

void Connection::beat() {
  if (lost()) return;
  bool whole = true;
  for (Lane& lane : lanes_) {
    lane.former.reset();
    receive(lane);  // what has come is heard before it is missed
    whole = whole && (lane.stream || !lane.begun);
  }
  pulse_.pass(loop().now());
  if (pulse_.silent())
    return lose(whole
                    ? fmt::format("nothing has come from it for {:.1f} s, not even a heartbeat",
                                  seconds(pulse_.silence()))
                    : fmt::format("the connection ended ({}), and for {:.1f} s there was no other",
                                  broken_by_, seconds(pulse_.silence())));
  widen();
  beat_due_ = true;
  if (told_ != received_) acknowledgement_due_ = true;
  send();
}

std::size_t Connection::up() const {
  return static_cast<std::size_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !!lane.stream; }));
}

void Connection::widen() {
  const Time now = loop().now();
  if (full_) full_for_ += now - std::exchange(full_since_, now);
  widening_.pass(std::exchange(moved_, 0), std::exchange(full_for_, Duration(0)), up());
  const std::size_t wanted = std::max(widening_.count(), peer_wants_);
  if (wanted <= lanes_.size()) return;
  if (on_wanted)
    on_wanted(wanted);
  else
    widen_due_ = true;
}

void Connection::leave() {
  tell({Kind::left, 0, 0, 0, 0, 0});
  send();
}

// A socket that is closed with something unread resets the connection, and what is still on its way
// to the peer is lost: so that is read, until the peer has all.
bool Connection::gone() {
  for (Lane& lane : lanes_) receive(lane);
  send();
  if (lost()) return true;
  const bool flushed = std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) {
    return !lane.stream || (!lane.departing && lane.stream->flushed());
  });
  return flushed && notes_.empty() && sent_.empty() && !has_messages();
}

}  // namespace skein::tcp

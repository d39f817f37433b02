// The frames that leave.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "fabric/tcp/connection.h"
#include "fabric/tcp/errors.h"

namespace skein::tcp {
namespace {

// Far more than a peer that reads lets gather.
constexpr std::size_t kMostNotes = 1 << 14;

// Frames that wait for their acknowledgement; a peer that reads acknowledges long before.
constexpr std::size_t kMostUnacknowledged = 1 << 15;

std::unique_ptr<std::byte[]> copy_of(const std::byte* data, std::size_t bytes) {
  auto out = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (bytes > 0) std::memcpy(out.get(), data, bytes);
  return out;
}

void append(std::vector<std::byte>& out, const Frame& frame, const std::string& text = "") {
  const FrameBytes header = encode(frame);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), bytes, bytes + text.size());
}

}  // namespace

void Connection::tell(const Frame& frame, const std::string& text) {
  notes_.push_back({frame, text});
  if (notes_.size() > kMostNotes) lose("it has stopped reading");
}

void Connection::number(Frame& frame, Sent sent) {
  frame.sequence = acknowledged_ + sent_.size() + 1;
  sent.header = encode(frame);
  sent_.push_back(std::move(sent));
}

// What has no data goes in one piece.
void Connection::gather_notes(Lane& lane) {
  std::vector<std::byte>& out = lane.departure.small;
  if (std::exchange(acknowledgement_due_, false)) {
    append(out, {Kind::acknowledged, 0, 0, 0, received_, 0});
    told_ = received_;
    owed_ = 0;
  }
  if (std::exchange(beat_due_, false)) append(out, {Kind::beat});
  if (std::exchange(widen_due_, false)) append(out, {Kind::widen, 0, 0, 0, widening_.count(), 0});
  if (ask_) append(out, *std::exchange(ask_, {}));
  if (answer_) append(out, *std::exchange(answer_, {}));
  for (; !notes_.empty(); notes_.pop_front()) {
    auto& [frame, text] = notes_.front();
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    Sent sent;
    sent.own = copy_of(bytes, text.size());
    sent.body = sent.own.get();
    sent.length = text.size();
    sent.lane = lane.index;
    number(frame, std::move(sent));
    append(out, frame, text);
  }
}

bool Connection::next_departure(Lane& lane) {
  lane.departure = {};
  gather_notes(lane);
  if (!lane.departure.small.empty()) return lane.departing = true;
  for (; !again_.empty(); again_.pop_front()) {
    if (again_.front() <= acknowledged_) continue;
    depart(lane, again_.front());
    again_.pop_front();
    return true;
  }
  Outbox* const box = sent_.size() < kMostUnacknowledged ? next_turn() : nullptr;
  if (box) depart_part(lane, *box);
  return box != nullptr;
}

// The next part of the next message.
void Connection::depart_part(Lane& lane, Outbox& box) {
  Outbox::Message& message = next_message(box);
  const std::size_t length = next_part(box);
  Sent sent;
  sent.body = message.data;
  sent.length = length;
  const bool small = message.total <= kMostOfAFrame;
  if (small) {
    sent.own = copy_of(message.data, length);
    sent.body = sent.own.get();
  } else {
    sent.box = &box;
    sent.number = message.number;
    ++message.parts;
  }
  const bool last = message.left == length;
  Frame frame{Kind::data,
              static_cast<std::uint32_t>(box.channel),
              message.number,
              static_cast<std::uint32_t>(length),
              message.total,
              message.total - message.left,
              0,
              last && !small};
  number(frame, std::move(sent));
  depart(lane, frame.sequence);
  part_has_left(box);
}

void Connection::depart(Lane& lane, std::uint64_t sequence) {
  Sent& frame = sent(sequence);
  frame.lane = lane.index;
  frame.again = false;
  lane.departure = {
      {frame.header.begin(), frame.header.end()}, frame.body, frame.length, 0, sequence, nullptr};
  lane.departing = true;
}

// Whichever stream is free takes what is next. One that is no longer worth it ends what it has
// begun, and is there for what comes on it and should the others be lost.
void Connection::send() {
  std::size_t used = 0;
  for (Lane& lane : lanes_) {
    if (lost()) return;
    if (!lane.stream || lane.mute) continue;
    send(lane, used < widening_.count());
    ++used;
  }
  measure();
}

void Connection::measure() {
  const bool full = has_turns();
  if (full == full_) return;
  const Time now = loop().now();
  if (full_) full_for_ += now - full_since_;
  full_since_ = now;
  full_ = full;
}

void Connection::send(Lane& lane, bool takes_more) {
  try {
    while (lane.departing || (takes_more && next_departure(lane))) {
      Lane::Departure& out = lane.departure;
      const std::size_t small = std::min(out.at, out.small.size());
      const std::size_t body = out.at - small;
      const std::array<iovec, 2> parts{
          iovec{out.small.data() + small, out.small.size() - small},
          iovec{const_cast<std::byte*>(out.body) + body, out.length - body}};
      out.at += lane.stream->write(parts);
      if (out.at < out.size()) break;
      lane.departing = false;
      if (full_) moved_ += out.size();
      if (out.length > 0) hear();
    }
    lane.stream->flush();
  } catch (const ConnectionEnded&) {
    // The peer may have sent its last words before it went: reading ends when they have been read.
    lane.mute = true;
    lane.stream->again();
    send_again();
  }
}

void Connection::acknowledge(std::uint64_t received) {
  if (received > acknowledged_ + sent_.size())
    throw IoError("it acknowledges more than it was sent");
  for (; acknowledged_ < received; ++acknowledged_) {
    Sent& frame = sent_.front();
    for (Lane& lane : lanes_) {  // that sends it again though the peer has it
      Lane::Departure& out = lane.departure;
      if (!lane.departing || out.sequence != acknowledged_ + 1) continue;
      out.own = frame.own ? std::move(frame.own) : copy_of(out.body, out.length);
      out.body = out.own.get();
    }
    if (Outbox* box = frame.box) {
      --box->messages[frame.number - box->messages.front().number].parts;
      release(*box);
    }
    sent_.pop_front();
  }
}

void Connection::keep(std::uint64_t sequence) {
  Sent& frame = sent(sequence);
  if (frame.own) return;
  frame.own = copy_of(frame.body, frame.length);
  frame.body = frame.own.get();
  for (Lane& lane : lanes_)
    if (lane.departing && lane.departure.sequence == sequence) lane.departure.body = frame.body;
}

// From here on nothing of the box's messages is needed for what has left.
void Connection::keep_sent(Outbox& box) {
  for (std::size_t i = 0; i < sent_.size(); ++i) {
    if (sent_[i].box != &box) continue;
    keep(acknowledged_ + 1 + i);
    sent_[i].box = nullptr;
  }
  for (Outbox::Message& message : box.messages) message.parts = 0;
}

void Connection::fail(const std::string& reason) {
  const std::string text = reason.substr(0, kMostOfAText);
  tell({Kind::failed, 0, 0, static_cast<std::uint32_t>(text.size()), 0, 0}, text);
  send();
}

void Connection::ask() {
  ask_ = {Kind::ask, 0, 0, 0, 0, now_as_count()};
  send();
}

void Connection::say(Word word, Channel channel, std::uint64_t total) {
  const Kind kind = word == Word::taken     ? Kind::taken
                    : word == Word::refused ? Kind::refused
                                            : Kind::withdrawn;
  tell({kind, static_cast<std::uint32_t>(channel), 0, 0, total, 0});
}

}  // namespace skein::tcp

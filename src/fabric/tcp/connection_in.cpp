// The frames that arrive.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/tcp/bytes.h"
#include "fabric/tcp/connection.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

// Taken in at once before others get their turn.
constexpr std::size_t kMostAtOnce = 1 << 20;

// How much is taken before the sender is told: often enough that it never runs out.
constexpr std::uint64_t kTellEvery = kWindow / 4;

// Turns of the loop in which one that has got a message comes to ask for the next: as many as there
// are coroutines between the two.
constexpr int kMostHesitations = 8;

// Whatever has been taken in by its end is a sign of life.
class Heard {
 public:
  Heard(const std::size_t& bytes, Pulse& pulse, const Loop& loop)
      : bytes_(bytes), pulse_(pulse), loop_(loop) {}
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  ~Heard() {
    if (bytes_ > 0) pulse_.hear(loop_.now());
  }

 private:
  const std::size_t& bytes_;
  Pulse& pulse_;
  const Loop& loop_;
};

void require(bool holds, const char* what) {
  if (!holds) throw IoError(fmt::format("it sent {}", what));
}

}  // namespace

Connection::Connection(Loop& loop, std::unique_ptr<Stream> stream, Signs& signs,
                       Duration least_silence)
    : loop_(loop),
      stream_(std::move(stream)),
      signs_(signs),
      pulse_(loop.now(), least_silence),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(kMostOfAFrame)),
      sign_(loop.now()) {
  stream_->on_ready = [this] { ready(); };
  stream_->again();  // what has come before is reported to nobody
}

Inbox& Connection::inbox(Channel channel) {
  return inboxes_.try_emplace(channel, loop_, channel).first->second;
}

void Connection::ready() {
  if (lost()) return;
  receive();
  send();
}

void Connection::receive() {
  if (lost()) return;
  try {
    std::size_t taken_in = 0;
    const Heard heard(taken_in, pulse_, loop_);
    while (taken_in < kMostAtOnce) {
      if (header_got_ < kFrameBytes) {
        const std::size_t got =
            stream_->read(header_.data() + header_got_, kFrameBytes - header_got_);
        if (got == 0) return;
        header_got_ += got;
        taken_in += got;
        if (header_got_ < kFrameBytes) continue;
        frame_ = decode_frame(header_);
      }
      if (body_ == Body::none && !begin_body()) return;
      while (body_got_ < frame_.length) {
        const std::size_t got = read_body();
        if (got == 0) return;
        body_got_ += got;
        taken_in += got;
      }
      end_body();
      header_got_ = 0;
      body_ = Body::none;
    }
    stream_->again();
  } catch (const IoError& error) {
    lose(error.what());
  }
}

// False: a receive for it may be posted when those who can go on have had their turn.
bool Connection::begin_body() {
  body_got_ = 0;
  if (frame_.kind == Kind::data) {
    box_ = &inbox(static_cast<Channel>(frame_.channel));
    return begin_data(*box_);
  }
  body_ = Body::text;  // which most do not have
  return true;
}

bool Connection::begin_data(Inbox& box) {
  if (box.closed) {
    body_ = Body::discarded;
    return true;
  }
  require(!box.withdrawn, "more of what it has withdrawn");
  const bool first = frame_.offset == 0;
  const bool ahead = box.arrivals.size() + (first ? 1 : 0) > 1;  // another one comes before it
  const bool soon =
      ahead ? box.arrivals.size() == 1 && box.arrivals.front().complete() : !box.receive;
  if (soon && hesitations_ < kMostHesitations) {
    ++hesitations_;
    stream_->again();
    return false;
  }
  hesitations_ = 0;
  if (first) {
    require(frame_.number == box.next &&
                (box.arrivals.empty() || box.arrivals.back().begun == box.arrivals.back().total),
            "messages in another order");
    ++box.next;
    box.arrivals.emplace_back().total = frame_.total;
    box.begun += kMessageCost;
  }
  require(!box.arrivals.empty(), "the end of a message that has none");
  Inbox::Arrival& arrival = box.arrivals.back();
  require(frame_.number + 1 == box.next && frame_.offset == arrival.begun &&
              frame_.total == arrival.total,
          "parts of messages in another order");
  arrival.begun += frame_.length;
  box.begun += frame_.length;
  require(box.begun - box.taken <= kWindow, "more than it may send ahead");
  if (box.receive && !ahead && box.receive->into.bytes() == arrival.total) {
    body_ = box.receive->combine == Combine::add ? Body::added : Body::direct;
  } else {
    body_ = Body::staged;
    if (box.receive) box.moved.notify_all();  // whoever waits for another size
    if (!arrival.staged)
      arrival.staged = std::make_unique_for_overwrite<std::byte[]>(
          std::min<std::uint64_t>(arrival.total, kWindow));
  }
  return true;
}

std::size_t Connection::read_body() {
  std::byte* into = scratch_.get() + body_got_;
  if (body_ == Body::direct)
    into = static_cast<std::byte*>(box_->receive->into.data) + frame_.offset + body_got_;
  if (body_ == Body::staged) into = box_->arrivals.back().staged.get() + frame_.offset + body_got_;
  return stream_->read(into, frame_.length - body_got_);
}

void Connection::end_body() {
  Outbox* out = nullptr;
  switch (frame_.kind) {
    case Kind::data:
      hear();
      if (body_ == Body::discarded) return;
      if (body_ == Body::staged) {
        box_->arrivals.back().waiting += frame_.length;
        if (box_->receive) settle(*box_);
      } else {
        if (body_ == Body::added) put(*box_->receive, frame_.offset, scratch_.get(), frame_.length);
        box_->arrivals.back().direct += frame_.length;
        let_go(*box_, frame_.length);
      }
      if (box_->arrivals.back().begun == frame_.total) box_->moved.notify_all();
      return;
    case Kind::taken:
      out = &outbox(static_cast<Channel>(frame_.channel));
      require(frame_.total >= out->returned && frame_.total <= out->spent,
              "an impossible count of what it has taken");
      out->returned = frame_.total;
      return queue(*out);
    case Kind::refused:
      out = &outbox(static_cast<Channel>(frame_.channel));
      out->refused = true;
      return forget_messages(*out);
    case Kind::withdrawn:
      box_ = &inbox(static_cast<Channel>(frame_.channel));
      box_->withdrawn = true;
      return box_->moved.notify_all();
    case Kind::failed:
      failure_ = ByteReader({scratch_.get(), frame_.length}).get_text(frame_.length);
      if (failure_.empty()) failure_ = "it does not say why";
      break;
    case Kind::left:
      left_ = true;
      break;
    case Kind::ask: {
      const Duration age = std::max(loop_.now() - signs_.last(), Duration(0));
      return tell({Kind::answer, 0, 0, 0, static_cast<std::uint64_t>(age.count()), frame_.offset});
    }
    case Kind::answer: {
      const auto now = static_cast<std::uint64_t>(loop_.now().time_since_epoch().count());
      require(frame_.offset <= now, "an answer from the future");
      const std::uint64_t sign = frame_.offset - std::min(frame_.offset, frame_.total);
      sign_ = std::max(sign_, Time(Duration(static_cast<std::int64_t>(sign))));
      if (awaited_ > 0) signs_.pass_on(sign_);
      return;
    }
    case Kind::beat:
      return pulse_.beat(loop_.now());
  }
  for (auto& [channel, each] : outboxes_) each.moved.notify_all();
  for (auto& [channel, each] : inboxes_) each.moved.notify_all();
}

void Connection::start(Inbox& box, const Inbox::Receive& receive) {
  SKEIN_CHECK(!box.receive, "two receives at once on channel {}", box.channel);
  box.receive = &receive;
  if (!box.arrivals.empty()) settle(box);
  send();
}

void Connection::stop(Inbox& box) {
  if (!std::exchange(box.receive, nullptr)) return;
  if (box_ == &box && (body_ == Body::direct || body_ == Body::added)) body_ = Body::discarded;
  if (!box.arrivals.empty() && !box.arrivals.front().complete()) close(box);
}

void Connection::close(Inbox& box) {
  if (box.closed) return;
  box.closed = true;
  box.arrivals.clear();
  if (box_ == &box && body_ == Body::staged) body_ = Body::discarded;
  tell({Kind::refused, static_cast<std::uint32_t>(box.channel), 0, 0, 0, 0});
  send();
}

void Connection::pop(Inbox& box) {
  SKEIN_CHECK(!box.arrivals.empty() && box.arrivals.front().complete(), "a message is dropped");
  box.arrivals.pop_front();
  box.receive = nullptr;
  let_go(box, kMessageCost);
  send();
}

// What waited for the receive goes where it belongs. A frame that has begun to wait does so to its
// end.
void Connection::settle(Inbox& box) {
  Inbox::Arrival& arrival = box.arrivals.front();
  if (arrival.waiting == arrival.settled || box.receive->into.bytes() != arrival.total) return;
  const std::uint64_t bytes = arrival.waiting - arrival.settled;
  put(*box.receive, arrival.settled, arrival.staged.get() + arrival.settled, bytes);
  arrival.settled = arrival.waiting;
  let_go(box, bytes);
}

void Connection::put(const Inbox::Receive& receive, std::uint64_t offset, std::byte* bytes,
                     std::size_t length) {
  if (length == 0) return;
  if (receive.combine == Combine::copy) {
    std::memcpy(static_cast<std::byte*>(receive.into.data) + offset, bytes, length);
    return;
  }
  const std::size_t element = size_of(receive.into.type);
  const Span into = receive.into.at({offset / element, length / element});
  add(into, {bytes, into.count, into.device, into.type});
}

void Connection::let_go(Inbox& box, std::uint64_t bytes) {
  box.taken += bytes;
  if (box.taken - box.told < kTellEvery) return;
  box.told = box.taken;
  tell({Kind::taken, static_cast<std::uint32_t>(box.channel), 0, 0, box.taken, 0});
}

void Connection::hear() {
  sign_ = loop_.now();
  signs_.progressed();
}

void Connection::lose(const std::string& reason) {
  if (lost()) return;
  lost_ = reason.empty() ? "the connection ended" : reason;
  ::shutdown(stream_->socket(), SHUT_RDWR);
  for (auto& [channel, each] : outboxes_) forget_messages(each);
  for (auto& [channel, each] : inboxes_) each.moved.notify_all();
}

std::string Connection::trouble() const {
  if (!failure_.empty()) return fmt::format("which failed: {}", failure_);
  if (left_) return "which has left the run";
  if (lost()) return fmt::format("which was lost: {}", lost_);
  return "";
}

}  // namespace skein::tcp

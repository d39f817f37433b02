// The frames that arrive.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/on_exit.h"
#include "fabric/tcp/bytes.h"
#include "fabric/tcp/connection.h"
#include "fabric/tcp/errors.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

// Taken in at once before others get their turn.
constexpr std::size_t kMostAtOnce = 1 << 20;

// How much arrives before it is acknowledged, if nobody waits for that: it is kept so long.
constexpr std::uint64_t kAcknowledgeEvery = std::uint64_t{256} * 1024;

// How far a frame may be ahead of one that is missing, more than a sender ever is.
constexpr std::uint64_t kMostBeyond = 1 << 17;

// Messages of a channel that its window has room for.
constexpr std::uint32_t kMostMessages = kWindow / kMessageCost;

// Turns of the loop in which one that has got a message comes to ask for the next: as many as there
// are coroutines between the two.
constexpr int kMostHesitations = 8;

void require(bool holds, const char* what) {
  if (!holds) throw IoError(fmt::format("it sent {}", what));
}

}  // namespace

void Connection::ready(Lane& lane) {
  receive(lane);
  send();
}

void Connection::receive(Lane& lane) {
  if (lost() || !lane.stream) return;
  try {
    std::size_t taken_in = 0;
    const OnExit heard([&] {  // whatever has come by then is a sign of life
      if (taken_in > 0) pulse_.hear(loop().now());
    });
    while (taken_in < kMostAtOnce && !lost()) {
      if (lane.header_got < kFrameBytes) {
        const std::size_t got =
            lane.stream->read(lane.header.data() + lane.header_got, kFrameBytes - lane.header_got);
        if (got == 0) return;
        lane.header_got += got;
        taken_in += got;
        if (lane.header_got < kFrameBytes) continue;
        lane.frame = decode_frame(lane.header);
      }
      if (lane.body == Lane::Body::none && !begin_body(lane)) return;
      while (lane.body_got < lane.frame.length) {
        const std::size_t got = read_body(lane);
        if (got == 0) return;
        lane.body_got += got;
        taken_in += got;
      }
      end_body(lane);
      lane.header_got = 0;
      lane.body = Lane::Body::none;
    }
    lane.stream->again();
  } catch (const ConnectionEnded& error) {
    broken(lane, error.what());
  } catch (const IoError& error) {
    lose(error.what());
  }
}

// False: a receive for it may be posted when those who can go on have had their turn.
bool Connection::begin_body(Lane& lane) {
  const Frame& frame = lane.frame;
  lane.body_got = 0;
  lane.cost = 0;
  require(frame.sequence <= received_ + kMostBeyond, "a number far ahead");
  if (numbered(frame.kind) && has(frame.sequence)) {
    lane.body = Lane::Body::discarded;
    return true;
  }
  if (frame.kind == Kind::data) {
    lane.box = &inbox(static_cast<Channel>(frame.channel));
    return begin_data(lane);
  }
  lane.body = Lane::Body::text;  // which most do not have
  return true;
}

bool Connection::begin_data(Lane& lane) {
  const Frame& frame = lane.frame;
  Inbox& box = *lane.box;
  if (box.closed) {
    lane.body = Lane::Body::discarded;
    return true;
  }
  if (twin(lane) != nullptr) {
    lane.staged = options_.memory->take(frame.length);
    lane.body = Lane::Body::copy;
    return true;
  }
  const std::uint32_t ahead = frame.number - box.first;  // messages that come before it
  require(ahead < kMostMessages, "a message far ahead, or one that it has sent");
  const bool last_is_done = !box.arrivals.empty() && box.arrivals.front().complete();
  const bool soon = ahead == 0 ? !box.receive : ahead == 1 && last_is_done;
  if (soon && lane.hesitations < kMostHesitations) {
    ++lane.hesitations;
    lane.stream->again();
    return false;
  }
  lane.hesitations = 0;
  const Inbox::Arrival& arrival = count(lane);
  if (box.receive && ahead == 0 && box.receive->into.bytes() == arrival.total) {
    lane.body = box.receive->combine == Combine::add ? Lane::Body::added : Lane::Body::direct;
  } else {
    if (ahead == 0 && box.receive) box.moved.notify_all();  // whoever waits for another size
    lane.staged = options_.memory->take(frame.length);
    lane.body = Lane::Body::staged;
  }
  return true;
}

// The lane that brings the same part, and has counted it.
Lane* Connection::twin(const Lane& lane) {
  for (Lane& each : lanes_)
    if (&each != &lane && each.brings_data() && each.frame.sequence == lane.frame.sequence)
      return &each;
  return nullptr;
}

// Takes note of a part that comes.
Inbox::Arrival& Connection::count(Lane& lane) {
  const Frame& frame = lane.frame;
  Inbox& box = *lane.box;
  const std::uint32_t ahead = frame.number - box.first;
  require(ahead < kMostMessages, "a message far ahead, or one that it has sent");
  while (box.arrivals.size() <= ahead) box.arrivals.emplace_back();
  Inbox::Arrival& arrival = box.arrivals[ahead];
  require(!arrival.known || arrival.total == frame.total, "a message of two sizes");
  require(arrival.settled + arrival.waiting + arrival.coming + frame.length <= frame.total,
          "a part twice");
  arrival.known = true;
  arrival.total = frame.total;
  const std::uint64_t cost = frame.length + (frame.offset == 0 ? kMessageCost : 0);
  require(box.come + box.coming + cost - box.taken <= kWindow, "more than it may send ahead");
  lane.cost = cost;
  box.coming += cost;
  arrival.coming += frame.length;
  return arrival;
}

// It does not come on this lane after all.
void Connection::take_back(Lane& lane) {
  if (!lane.brings_data()) return;
  lane.box->coming -= lane.cost;
  lane.box->arrivals[lane.frame.number - lane.box->first].coming -= lane.frame.length;
}

std::size_t Connection::read_body(Lane& lane) {
  const Frame& frame = lane.frame;
  std::byte* into = lane.scratch.get();
  if (lane.body == Lane::Body::direct)
    into = static_cast<std::byte*>(lane.box->receive->into.data) + frame.offset;
  if (lane.body == Lane::Body::staged || lane.body == Lane::Body::copy) into = lane.staged.get();
  return lane.stream->read(into + lane.body_got, frame.length - lane.body_got);
}

void Connection::end_body(Lane& lane) {
  const Frame& frame = lane.frame;
  owed_ += kFrameBytes + frame.length;
  const bool came_before = numbered(frame.kind) && has(frame.sequence);  // on another lane
  if (numbered(frame.kind)) mark_received(frame.sequence);
  if (frame.prompt || frame.kind == Kind::left) waited_for_ = std::max(waited_for_, frame.sequence);
  if (owed_ >= kAcknowledgeEvery || (received_ >= waited_for_ && told_ < waited_for_))
    acknowledgement_due_ = true;
  if (frame.kind == Kind::data) hear();
  if (lane.body == Lane::Body::discarded) return;
  if (came_before || (lane.body == Lane::Body::copy && lane.box->closed)) {
    if (lane.staged) options_.memory->give_back(std::move(lane.staged), frame.length);
    return;
  }
  if (lane.body == Lane::Body::copy) end_copy(lane);
  if (frame.kind == Kind::data)
    end_data(lane);
  else
    heed(lane);
}

// It is whole before what the other lane brings, which counts no more.
void Connection::end_copy(Lane& lane) {
  if (Lane* other = twin(lane)) {
    take_back(*other);
    other->body = Lane::Body::discarded;
  }
  count(lane);
  lane.body = Lane::Body::staged;
}

void Connection::mark_received(std::uint64_t sequence) {
  if (sequence > received_) beyond_.insert(sequence);
  while (!beyond_.empty() && *beyond_.begin() == received_ + 1) {
    ++received_;
    beyond_.erase(beyond_.begin());
  }
  if (left()) notify_all();
}

void Connection::end_data(Lane& lane) {
  const Frame& frame = lane.frame;
  Inbox& box = *lane.box;
  Inbox::Arrival& arrival = box.arrivals[frame.number - box.first];
  arrival.coming -= frame.length;
  box.coming -= lane.cost;
  box.come += lane.cost;
  if (lane.body == Lane::Body::staged) {
    arrival.waiting += frame.length;
    arrival.pieces.push_back({frame.offset, frame.length, std::move(lane.staged)});
    if (box.receive) settle(box);
  } else {
    if (lane.body == Lane::Body::added)
      box.receive->put(frame.offset, lane.scratch.get(), frame.length);
    arrival.settled += frame.length;
    let_go(box, frame.length);
  }
  if (arrival.all_there() || box.exhausted()) box.moved.notify_all();
}

// What is not data.
void Connection::heed(const Lane& lane) {
  const Frame& frame = lane.frame;
  const auto channel = static_cast<Channel>(frame.channel);
  switch (frame.kind) {
    case Kind::data:
      return;
    case Kind::taken: {
      Outbox& box = outbox(channel);
      require(frame.total <= box.spent, "an impossible count of what it has taken");
      return heed_taken(box, frame.total);
    }
    case Kind::refused:
      return heed_refused(outbox(channel));
    case Kind::withdrawn:
      return heed_withdrawn(inbox(channel), frame.total);
    case Kind::failed:
      return heed_failed(ByteReader({lane.scratch.get(), frame.length}).get_text(frame.length));
    case Kind::left:
      left_at_ = frame.sequence;
      return notify_all();
    case Kind::acknowledged:
      return acknowledge(std::max(acknowledged_, frame.total));
    case Kind::ask:
      answer_ = {Kind::answer, 0, 0, 0, age_of_last_sign(), frame.offset};
      return;
    case Kind::answer:
      require(frame.offset <= now_as_count(), "an answer from the future");
      return heed_answer(frame.offset, frame.total);
    case Kind::beat:
      return pulse_.beat(loop().now());
    case Kind::widen:
      peer_wants_ = std::clamp<std::uint64_t>(frame.total, 1, options_.most_streams);
      return;
  }
}

// A closed box takes nothing that comes; one whose receive has stopped, nothing for that.
void Connection::discard(Inbox& box) {
  for (Lane& lane : lanes_) {
    const bool for_receive = lane.body == Lane::Body::direct || lane.body == Lane::Body::added;
    if (lane.box == &box && (box.closed ? lane.brings_data() : for_receive))
      lane.body = Lane::Body::discarded;
  }
}

}  // namespace skein::tcp

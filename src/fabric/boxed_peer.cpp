#include "fabric/boxed_peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "kernels/kernels.h"

namespace skein {

using boxed::kMessageCost;
using boxed::kWindow;

namespace {

// How much is taken before the sender is told: often enough that it never runs out.
constexpr std::uint64_t kTellEvery = kWindow / 4;

}  // namespace

void boxed::Inbox::Receive::put(std::uint64_t offset, const std::byte* bytes,
                                std::size_t length) const {
  if (length == 0) return;
  if (combine == Combine::copy) {
    std::memcpy(static_cast<std::byte*>(into.data) + offset, bytes, length);
    return;
  }
  const std::size_t element = size_of(into.type);
  const Span part = into.at({offset / element, length / element});
  add(part, {const_cast<std::byte*>(bytes), part.count, part.device, part.type});
}

BoxedPeer::BoxedPeer(Loop& loop, Signs& signs, std::size_t most_of_a_part)
    : loop_(loop), signs_(signs), most_of_a_part_(most_of_a_part), sign_(loop.now()) {}

BoxedPeer::Outbox& BoxedPeer::outbox(Channel channel) {
  return outboxes_.try_emplace(channel, loop_, channel).first->second;
}

BoxedPeer::Inbox& BoxedPeer::inbox(Channel channel) {
  return inboxes_.try_emplace(channel, loop_, channel).first->second;
}

void BoxedPeer::post(Outbox& box, Span data) {
  const auto* bytes = static_cast<const std::byte*>(data.data);
  box.messages.push_back({bytes, data.bytes(), data.bytes(), box.next++, nullptr, 0, false});
  queue(box);
  send();
}

std::size_t BoxedPeer::next_part(Outbox& box) const {
  return std::min(next_message(box).left, most_of_a_part_);
}

std::uint64_t BoxedPeer::cost(Outbox& box) const {
  const Outbox::Message& message = next_message(box);
  return next_part(box) + (message.left == message.total ? kMessageCost : 0);
}

void BoxedPeer::queue(Outbox& box) {
  if (box.in_turn || box.waiting() == 0 || box.spent - box.returned + cost(box) > kWindow) return;
  box.in_turn = true;
  turns_.push_back(&box);
}

BoxedPeer::Outbox* BoxedPeer::next_turn() {
  while (!turns_.empty()) {
    Outbox& box = *turns_.front();
    turns_.pop_front();
    box.in_turn = false;
    if (box.waiting() > 0) return &box;  // else it was forgotten
  }
  return nullptr;
}

void BoxedPeer::part_has_left(Outbox& box) {
  Outbox::Message& message = next_message(box);
  const std::size_t length = next_part(box);
  box.spent += cost(box);
  message.data += length;
  message.left -= length;
  if (message.left == 0) {
    message.departed = true;
    ++box.departed;
    release(box);
    box.moved.notify_all();
  }
  queue(box);
}

// Messages that nobody can ask for again, or whose parts have copies.
void BoxedPeer::release(Outbox& box) {
  while (!box.messages.empty() && box.messages.front().departed &&
         box.messages.front().parts == 0) {
    box.messages.pop_front();
    --box.departed;
    box.moved.notify_all();
  }
}

void BoxedPeer::keep_messages(Outbox& box) {
  keep_sent(box);
  release(box);
  for (Outbox::Message& message : box.messages) {
    if (message.own) continue;
    message.own = std::make_unique_for_overwrite<std::byte[]>(message.left);
    if (message.left > 0) std::memcpy(message.own.get(), message.data, message.left);
    message.data = message.own.get();
  }
}

// What has left must be whole: the peer expects its bytes.
void BoxedPeer::forget_messages(Outbox& box) {
  keep_sent(box);
  box.dropped |= box.waiting() > 0;
  box.messages.clear();
  box.departed = 0;
  box.moved.notify_all();
}

bool BoxedPeer::has_messages() const {
  return std::any_of(outboxes_.begin(), outboxes_.end(),
                     [](const auto& each) { return !each.second.messages.empty(); });
}

void BoxedPeer::close(Outbox& box) {
  if (std::exchange(box.closed, true)) return;
  forget_messages(box);
  if (!box.refused) say(Word::withdrawn, box.channel, box.spent);
  send();
}

void BoxedPeer::start(Inbox& box, const Inbox::Receive& receive) {
  SKEIN_CHECK(!box.receive, "two receives at once on channel {}", box.channel);
  box.receive = &receive;
  if (!box.arrivals.empty()) settle(box);
  send();
}

void BoxedPeer::stop(Inbox& box) {
  if (!std::exchange(box.receive, nullptr)) return;
  discard(box);
  if (!box.arrivals.empty() && box.arrivals.front().known && !box.arrivals.front().complete())
    close(box);
}

void BoxedPeer::close(Inbox& box) {
  if (std::exchange(box.closed, true)) return;
  box.arrivals.clear();
  discard(box);
  say(Word::refused, box.channel, 0);
  send();
}

void BoxedPeer::pop(Inbox& box) {
  SKEIN_CHECK(!box.arrivals.empty() && box.arrivals.front().complete(), "a message is dropped");
  box.arrivals.pop_front();
  ++box.first;
  box.receive = nullptr;
  let_go(box, kMessageCost);
  send();
}

// What waited for the receive goes where it belongs. A part that has begun to wait does so to its
// end.
void BoxedPeer::settle(Inbox& box) {
  Inbox::Arrival& arrival = box.arrivals.front();
  if (arrival.pieces.empty() || box.receive->into.bytes() != arrival.total) return;
  for (Inbox::Piece& piece : arrival.pieces) {
    box.receive->put(piece.offset, piece.bytes.get(), piece.length);
    give_back(std::move(piece.bytes), piece.length);
  }
  arrival.pieces.clear();
  arrival.settled += arrival.waiting;
  let_go(box, std::exchange(arrival.waiting, 0));
}

void BoxedPeer::let_go(Inbox& box, std::uint64_t bytes) {
  box.taken += bytes;
  if (box.taken - box.told < kTellEvery) return;
  box.told = box.taken;
  say(Word::taken, box.channel, box.taken);
}

void BoxedPeer::heed_taken(Outbox& box, std::uint64_t total) {
  box.returned = std::max(box.returned, total);
  queue(box);
}

void BoxedPeer::heed_refused(Outbox& box) {
  box.refused = true;
  forget_messages(box);
}

void BoxedPeer::heed_withdrawn(Inbox& box, std::uint64_t total) {
  box.withdrawn = true;
  box.last = total;
  box.moved.notify_all();
}

void BoxedPeer::heed_failed(std::string reason) {
  failure_ = reason.empty() ? "it does not say why" : std::move(reason);
  notify_all();
}

std::uint64_t BoxedPeer::now_as_count() const {
  return static_cast<std::uint64_t>(loop_.now().time_since_epoch().count());
}

std::uint64_t BoxedPeer::age_of_last_sign() const {
  const Duration age = std::max(loop_.now() - signs_.last(), Duration(0));
  return static_cast<std::uint64_t>(age.count());
}

void BoxedPeer::heed_answer(std::uint64_t asked_at, std::uint64_t age) {
  const std::uint64_t sign = asked_at - std::min(asked_at, age);
  sign_ = std::max(sign_, Time(Duration(static_cast<std::int64_t>(sign))));
  if (awaited_ > 0) signs_.pass_on(sign_);
}

void BoxedPeer::hear() {
  sign_ = loop_.now();
  signs_.progressed();
}

void BoxedPeer::notify_all() {
  for (auto& [channel, each] : outboxes_) each.moved.notify_all();
  for (auto& [channel, each] : inboxes_) each.moved.notify_all();
}

}  // namespace skein

#include "fabric/mpi/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "kernels/kernels.h"

namespace skein::mpi {
namespace {

// Packets to a rank that MPI may have at once, before further data waits.
constexpr std::size_t kMostUnderWay = 8;

constexpr std::uint64_t kTellEvery = kWindow / 4;

std::size_t next_part(const Outbox& box) {
  return std::min(box.messages.front().left, kMostOfAPacket);
}

std::uint64_t cost(const Outbox& box) {
  const Outbox::Message& message = box.messages.front();
  return next_part(box) + (message.left == message.total ? kMessageCost : 0);
}

void put(const Inbox::Receive& receive, std::uint64_t offset, const std::byte* bytes,
         std::size_t length) {
  if (length == 0) return;
  if (receive.combine == Combine::copy) {
    std::memcpy(static_cast<std::byte*>(receive.into.data) + offset, bytes, length);
    return;
  }
  const std::size_t element = size_of(receive.into.type);
  const Span into = receive.into.at({offset / element, length / element});
  add(into, {const_cast<std::byte*>(bytes), into.count, into.device, into.type});
}

}  // namespace

Peer::Peer(Loop& loop, Mail& mail, Signs& signs, int rank)
    : loop_(loop), mail_(mail), signs_(signs), rank_(rank), sign_(loop.now()) {}

Outbox& Peer::outbox(Channel channel) {
  return outboxes_.try_emplace(channel, loop_, channel).first->second;
}

Inbox& Peer::inbox(Channel channel) {
  return inboxes_.try_emplace(channel, loop_, channel).first->second;
}

void Peer::tell(Kind kind, Channel channel, std::uint64_t total) {
  mail_.send(rank_, {kind, static_cast<std::uint32_t>(channel), total});
}

void Peer::post(Outbox& box, Span data) {
  const auto* bytes = static_cast<const std::byte*>(data.data);
  box.messages.push_back({bytes, data.bytes(), data.bytes(), nullptr});
  queue(box);
  send();
}

void Peer::queue(Outbox& box) {
  if (box.in_turn || box.messages.empty()) return;
  if (box.spent - box.returned + cost(box) > kWindow) return;
  box.in_turn = true;
  turns_.push_back(&box);
}

void Peer::send() {
  while (!turns_.empty() && mail_.under_way(rank_) < kMostUnderWay) {
    Outbox& box = *turns_.front();
    turns_.pop_front();
    box.in_turn = false;
    if (!box.messages.empty()) depart(box);
  }
}

bool Peer::has_more() const {
  return trouble().empty() && std::any_of(outboxes_.begin(), outboxes_.end(), [](const auto& each) {
           return !each.second.messages.empty();
         });
}

void Peer::depart(Outbox& box) {
  Outbox::Message& message = box.messages.front();
  const std::size_t length = next_part(box);
  box.spent += cost(box);
  mail_.send(rank_,
             {Kind::data, static_cast<std::uint32_t>(box.channel), message.total,
              message.total - message.left},
             message.data, length);
  signs_.progressed();
  message.data += length;
  message.left -= length;
  if (message.left == 0) {
    box.messages.pop_front();
    ++box.departed;
    box.moved.notify_all();
  }
  queue(box);
}

void Peer::keep_messages(Outbox& box) {
  for (Outbox::Message& message : box.messages) {
    if (message.own) continue;
    message.own = std::make_unique_for_overwrite<std::byte[]>(message.left);
    if (message.left > 0) std::memcpy(message.own.get(), message.data, message.left);
    message.data = message.own.get();
  }
}

void Peer::forget_messages(Outbox& box) {
  box.dropped |= !box.messages.empty();
  box.messages.clear();
  box.moved.notify_all();
}

void Peer::close(Outbox& box) {
  if (std::exchange(box.closed, true)) return;
  forget_messages(box);
  if (!box.refused) tell(Kind::withdrawn, box.channel);
}

bool Peer::take(const Arrived& arrived) {
  const Header& header = arrived.header;
  const auto channel = static_cast<Channel>(header.channel);
  switch (header.kind) {
    case Kind::data:
      return take_data(arrived);
    case Kind::taken: {
      Outbox& box = outbox(channel);
      box.returned = std::max(box.returned, std::min(header.total, box.spent));
      hear();
      queue(box);
      break;
    }
    case Kind::refused:
      outbox(channel).refused = true;
      forget_messages(outbox(channel));
      break;
    case Kind::withdrawn:
      inbox(channel).withdrawn = true;
      inbox(channel).moved.notify_all();
      break;
    case Kind::failed:
      failure_.assign(reinterpret_cast<const char*>(arrived.body), arrived.length);
      if (failure_.empty()) failure_ = "it does not say why";
      notify_all();
      break;
    case Kind::left:
      left_ = true;
      notify_all();
      break;
    case Kind::ask: {
      const Duration age = std::max(loop_.now() - signs_.last(), Duration(0));
      mail_.send(rank_, {Kind::answer, 0, static_cast<std::uint64_t>(age.count()), header.value});
      break;
    }
    case Kind::answer:
      heed_answer(header);
      break;
  }
  return true;
}

// A receive that has ended is followed by the next as soon as its owner has had his turn.
bool Peer::take_data(const Arrived& arrived) {
  const Header& header = arrived.header;
  Inbox& box = inbox(static_cast<Channel>(header.channel));
  if (box.closed) return true;
  const bool first = header.value == 0;
  const bool for_the_receive = box.arrivals.size() == (first ? 0 : 1);
  const bool soon = for_the_receive ? !box.receive : box.arrivals.front().complete();
  if (soon && arrived.may_wait) return false;
  hear();
  if (first) box.arrivals.push_back({header.total, 0, 0, {}});
  Inbox::Arrival& arrival = box.arrivals.back();
  SKEIN_CHECK(header.value == arrival.come && arrival.come + arrived.length <= arrival.total,
              "rank {} sent a part out of order", rank_);
  arrival.come += arrived.length;
  if (for_the_receive && box.receive && box.receive->into.bytes() == arrival.total) {
    put(*box.receive, header.value, arrived.body, arrived.length);
    arrival.settled += arrived.length;
    let_go(box, arrived.length);
  } else {
    Inbox::Piece piece{mail_.buffers().take(arrived.length), arrived.length};
    std::memcpy(piece.bytes.get(), arrived.body, arrived.length);
    arrival.pieces.push_back(std::move(piece));
  }
  if (arrival.come == arrival.total || for_the_receive) box.moved.notify_all();
  return true;
}

void Peer::heed_answer(const Header& header) {
  asked_ = false;
  const std::uint64_t sign = header.value - std::min(header.value, header.total);
  sign_ = std::max(sign_, Time(Duration(static_cast<std::int64_t>(sign))));
  if (awaited_ > 0) signs_.pass_on(sign_);
}

void Peer::notify_all() {
  for (auto& [channel, each] : outboxes_) each.moved.notify_all();
  for (auto& [channel, each] : inboxes_) each.moved.notify_all();
}

void Peer::start(Inbox& box, const Inbox::Receive& receive) {
  SKEIN_CHECK(!box.receive, "two receives at once on channel {}", box.channel);
  box.receive = &receive;
  if (!box.arrivals.empty()) settle(box);
}

void Peer::stop(Inbox& box) {
  if (!std::exchange(box.receive, nullptr)) return;
  if (!box.arrivals.empty() && !box.arrivals.front().complete()) close(box);
}

void Peer::close(Inbox& box) {
  if (std::exchange(box.closed, true)) return;
  box.arrivals.clear();
  tell(Kind::refused, box.channel);
}

void Peer::pop(Inbox& box) {
  SKEIN_CHECK(!box.arrivals.empty() && box.arrivals.front().complete(), "a message is dropped");
  box.arrivals.pop_front();
  box.receive = nullptr;
  let_go(box, kMessageCost);
}

// What waited for the receive goes where it belongs.
void Peer::settle(Inbox& box) {
  Inbox::Arrival& arrival = box.arrivals.front();
  if (box.receive->into.bytes() != arrival.total) return;
  for (Inbox::Piece& piece : arrival.pieces) {
    put(*box.receive, arrival.settled, piece.bytes.get(), piece.length);
    arrival.settled += piece.length;
    let_go(box, piece.length);
    mail_.buffers().give_back(std::move(piece.bytes), piece.length);
  }
  arrival.pieces.clear();
}

void Peer::let_go(Inbox& box, std::uint64_t bytes) {
  box.taken += bytes;
  if (box.taken - box.told < kTellEvery) return;
  box.told = box.taken;
  tell(Kind::taken, box.channel, box.taken);
}

void Peer::hear() {
  sign_ = loop_.now();
  signs_.progressed();
}

void Peer::fail(const std::string& reason) {
  const std::string text = reason.substr(0, kMostOfAText);
  mail_.send(rank_, {Kind::failed}, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

void Peer::ask() {
  if (std::exchange(asked_, true)) return;
  const auto now = static_cast<std::uint64_t>(loop_.now().time_since_epoch().count());
  mail_.send(rank_, {Kind::ask, 0, 0, now});
}

std::string Peer::trouble() const {
  if (!failure_.empty()) return "which failed: " + failure_;
  if (left_) return "which has left the run";
  if (!mail_.trouble().empty()) return "which cannot be reached: " + mail_.trouble();
  return "";
}

}  // namespace skein::mpi

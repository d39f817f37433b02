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

}  // namespace

Peer::Peer(Loop& loop, Mail& mail, Signs& signs, int rank)
    : BoxedPeer(loop, signs, kMostOfAPacket), mail_(mail), rank_(rank) {}

void Peer::say(Word word, Channel channel, std::uint64_t total) {
  const Kind kind = word == Word::taken     ? Kind::taken
                    : word == Word::refused ? Kind::refused
                                            : Kind::withdrawn;
  mail_.send(rank_, {kind, static_cast<std::uint32_t>(channel), total});
}

void Peer::send() {
  while (has_turns() && mail_.under_way(rank_) < kMostUnderWay) {
    Outbox* const box = next_turn();
    if (!box) return;
    const Outbox::Message& message = next_message(*box);
    mail_.send(rank_,
               {Kind::data, static_cast<std::uint32_t>(box->channel), message.total,
                message.total - message.left},
               message.data, next_part(*box));
    signs().progressed();
    part_has_left(*box);
  }
}

bool Peer::take(const Arrived& arrived) {
  const Header& header = arrived.header;
  const auto channel = static_cast<Channel>(header.channel);
  switch (header.kind) {
    case Kind::data:
      return take_data(arrived);
    case Kind::taken:
      hear();
      heed_taken(outbox(channel), std::min(header.total, outbox(channel).spent));
      break;
    case Kind::refused:
      heed_refused(outbox(channel));
      break;
    case Kind::withdrawn:  // behind all that came
      heed_withdrawn(inbox(channel), 0);
      break;
    case Kind::failed:
      heed_failed({reinterpret_cast<const char*>(arrived.body), arrived.length});
      break;
    case Kind::left:
      left_ = true;
      notify_all();
      break;
    case Kind::ask:
      mail_.send(rank_, {Kind::answer, 0, age_of_last_sign(), header.value});
      break;
    case Kind::answer:
      asked_ = false;
      heed_answer(header.value, header.total);
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
  if (first) box.arrivals.push_back({.known = true, .total = header.total, .pieces = {}});
  Inbox::Arrival& arrival = box.arrivals.back();
  SKEIN_CHECK(header.value == arrival.settled + arrival.waiting &&
                  header.value + arrived.length <= arrival.total,
              "rank {} sent a part out of order", rank_);
  if (for_the_receive && box.receive && box.receive->into.bytes() == arrival.total) {
    box.receive->put(header.value, arrived.body, arrived.length);
    arrival.settled += arrived.length;
    let_go(box, arrived.length);
  } else {
    Inbox::Piece piece{header.value, arrived.length, mail_.memory().take(arrived.length)};
    std::memcpy(piece.bytes.get(), arrived.body, arrived.length);
    arrival.pieces.push_back(std::move(piece));
    arrival.waiting += arrived.length;
  }
  if (arrival.all_there() || for_the_receive) box.moved.notify_all();
  return true;
}

void Peer::fail(const std::string& reason) {
  const std::string text = reason.substr(0, kMostOfAText);
  mail_.send(rank_, {Kind::failed}, reinterpret_cast<const std::byte*>(text.data()), text.size());
}

void Peer::ask() {
  if (std::exchange(asked_, true)) return;
  mail_.send(rank_, {Kind::ask, 0, 0, now_as_count()});
}

std::string Peer::trouble() const {
  if (!failure().empty()) return "which failed: " + failure();
  if (left_) return "which has left the run";
  if (!mail_.trouble().empty()) return "which cannot be reached: " + mail_.trouble();
  return "";
}

}  // namespace skein::mpi

#include "fabric/local/collective.h"

#include <array>

namespace skein {

using shm::Desk;
using shm::Offer;

namespace {

const char* words(std::uint32_t kind) {
  constexpr std::array<const char*, 6> kWords{"something else", "reduce_scatter", "all_gather",
                                              "all_reduce",     "broadcast",      "combine"};
  return kWords[kind < kWords.size() ? kind : 0];
}

const char* memory(std::uint64_t ready) { return ready == 0 ? "the host" : "a device"; }

}  // namespace

void LocalFabric::Collective::lost(int peer) const {
  throw IoError(
      fmt::format("{}: rank {} has given it up", describe(operation_), fabric_.named(peer)),
      fabric_.named(peer));
}

Task<> LocalFabric::Collective::offer(const shm::Place& place, std::uint64_t ready) {
  desk(fabric_.rank()).offers[round_ % 2] = {place, static_cast<std::uint32_t>(kind_),
                                             static_cast<std::uint32_t>(root_), ready};
  offered_ = true;
  co_await meet(&Desk::offered);
}

Task<> LocalFabric::Collective::meet(std::atomic<std::uint64_t> Desk::*step) {
  (desk(fabric_.rank()).*step).store(round_, std::memory_order_seq_cst);
  fabric_.came_further();
  fabric_.ring_all();
  for (int peer = 0; peer < fabric_.size(); ++peer) {
    if (peer == fabric_.rank()) continue;
    const auto& theirs = desk(peer).*step;
    const auto reached = [&] { return theirs.load(std::memory_order_acquire) >= round_; };
    co_await fabric_.wait_for(operation_, peer, reached, [&] { return has_given_up(peer); });
    if (step == &Desk::offered) check_offer(peer);
  }
}

// Every rank compares with every other, so a mismatch is an error on all of them.
void LocalFabric::Collective::check_offer(int peer) const {
  const Offer& mine = offer_of(fabric_.rank());
  const Offer& offer = offer_of(peer);
  const bool same_memory = (offer.ready == 0) == (mine.ready == 0);
  if (offer.kind == mine.kind && offer.place.bytes == mine.place.bytes && offer.root == mine.root &&
      same_memory)
    return;
  const int own = fabric_.named(fabric_.rank()), other = fabric_.named(peer);
  std::string difference = fmt::format("{} bytes on rank {}, {} on rank {}", mine.place.bytes, own,
                                       offer.place.bytes, other);
  if (offer.kind != mine.kind)
    difference = fmt::format("{} on rank {}, {} on rank {}", words(mine.kind), own,
                             words(offer.kind), other);
  else if (offer.root != mine.root)
    difference = fmt::format("from rank {} as rank {} sees it, from another as rank {} does",
                             fabric_.named(root_), own, other);
  else if (!same_memory)
    difference = fmt::format("memory of {} on rank {}, of {} on rank {}", memory(mine.ready), own,
                             memory(offer.ready), other);
  throw IoError(fmt::format("{}: the workers disagree: {}", describe(operation_), difference),
                other);
}

}  // namespace skein

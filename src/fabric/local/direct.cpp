// The local fabric's collectives on shared memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

using local::Desk;
using local::Offer;

// Elements up to which one more copy costs less than one more meeting of all ranks.
constexpr std::size_t kSmall = 4096;

// Buffers outside shared memory take part through a copy inside it.
class LocalFabric::Staged {
 public:
  Staged(LocalFabric& fabric, Span buffer) : buffer_(buffer), shared_(buffer) {
    if (fabric.own().contains(buffer.data, buffer.bytes())) return;
    memory_ = fabric.allocate(buffer.count);
    shared_ = memory_->span();
    copy(shared_, buffer_);
  }
  Span span() const { return shared_; }
  void finish() {
    if (memory_) copy(buffer_, shared_);
  }

 private:
  Span buffer_, shared_;
  std::unique_ptr<Memory> memory_;
};

// Puts `shared` where the peers look for it and waits until all have done the same.
Task<> LocalFabric::offer(const Operation& operation, Kind kind, Span shared, int root) {
  Desk& desk = own().header().desks[operation.channel];
  const std::uint64_t round = operation.sequence + 1;
  desk.offers[round % 2] = {static_cast<std::uint64_t>(kind), own().offset_of(shared.data),
                            shared.count, static_cast<std::uint64_t>(root)};
  desk.offered.store(round, std::memory_order_release);
  ring_all();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Desk& other = segment(peer).header().desks[operation.channel];
    co_await wait_for(operation, peer, other.offered, round);
    check_offer(operation, peer, kind, shared.count, root);
  }
}

template <typename Work>
Task<> LocalFabric::direct(const Operation& operation, Kind kind, Span buffer, int root,
                           Work work) {
  Staged staged(*this, buffer);
  co_await offer(operation, kind, staged.span(), root);
  work(staged.span());
  const std::uint64_t round = operation.sequence + 1;
  own().header().desks[operation.channel].finished.store(round, std::memory_order_release);
  ring_all();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Desk& other = segment(peer).header().desks[operation.channel];
    co_await wait_for(operation, peer, other.finished, round);
  }
  staged.finish();
}

// There are two copies, used alternately. One is written again only in the round after the next,
// and that begins when all peers have offered the next: by then they are done with this one.
template <typename Work>
Task<> LocalFabric::direct_small(const Operation& operation, Kind kind, Span buffer, int root,
                                 Work work) {
  Span& copies = small_copies_[static_cast<std::size_t>(operation.channel)];
  if (copies.count == 0) copies = own().allocate(2 * kSmall);
  const Span mine = copies.at({operation.sequence % 2 * kSmall, buffer.count});
  copy(mine, buffer);
  co_await offer(operation, kind, mine, root);
  work(buffer);
}

// Every rank compares with every other, so a mismatch is an error on all of them.
void LocalFabric::check_offer(const Operation& operation, int peer, Kind kind, std::size_t count,
                              int root) {
  const Offer& offer =
      segment(peer).header().desks[operation.channel].offers[(operation.sequence + 1) % 2];
  if (offer.kind == static_cast<std::uint64_t>(kind) && offer.count == count &&
      offer.root == static_cast<std::uint64_t>(root))
    return;
  throw IoError(
      fmt::format("{}: ranks disagree: rank {} has {} elements (kind {}, root {}), rank {} has {} "
                  "elements (kind {}, root {})",
                  describe(operation), rank(), count, static_cast<int>(kind), root, peer,
                  offer.count, offer.kind, offer.root),
      peer);
}

Span LocalFabric::offered_by(int peer, const Operation& operation, std::size_t count) {
  const Offer& offer =
      segment(peer).header().desks[operation.channel].offers[(operation.sequence + 1) % 2];
  return {segment(peer).at(offer.offset), count};
}

// In the ring's order, so that the sum has the same bits as on any other fabric.
void LocalFabric::sum_part(const Operation& operation, Span buffer, int owner, Range part) {
  std::array<const float*, local::kMostRanks> sources{};
  for (int i = 1; i <= size(); ++i) {
    const int peer = (owner + i) % size();
    const Span whole = peer == rank() ? buffer : offered_by(peer, operation, buffer.count);
    sources[static_cast<std::size_t>(i) - 1] = whole.at(part).data;
  }
  sum(buffer.at(part), std::span(sources).first(static_cast<std::size_t>(size())));
}

void LocalFabric::sum_own_shard(const Operation& operation, Span buffer) {
  sum_part(operation, buffer, rank(), shard(buffer.count, size(), rank()));
}

void LocalFabric::sum_all_shards(const Operation& operation, Span buffer) {
  for (int owner = 0; owner < size(); ++owner)
    sum_part(operation, buffer, owner, shard(buffer.count, size(), owner));
}

// Sums the own shard and writes the result into all buffers: only this rank touches this shard of
// any of them until all have finished. Block by block, so that what is written is still in the
// cache.
void LocalFabric::sum_and_hand_out(const Operation& operation, Span buffer) {
  constexpr std::size_t kBlock = 4096;
  const Range whole = shard(buffer.count, size(), rank());
  for (std::size_t at = whole.offset; at < whole.end(); at += kBlock) {
    const Range block{at, std::min(kBlock, whole.end() - at)};
    sum_part(operation, buffer, rank(), block);
    for (int i = 1; i < size(); ++i)
      copy(offered_by((rank() + i) % size(), operation, buffer.count).at(block), buffer.at(block));
  }
}

Task<> LocalFabric::run_reduce_scatter(const Operation& operation, Span buffer) {
  if (options_.link.on()) return Fabric::run_reduce_scatter(operation, buffer);
  count_sent((buffer.count - shard(buffer.count, size(), rank()).count) * sizeof(float));
  const auto work = [this, &operation](Span mine) { sum_own_shard(operation, mine); };
  return buffer.count <= kSmall ? direct_small(operation, Kind::reduce_scatter, buffer, 0, work)
                                : direct(operation, Kind::reduce_scatter, buffer, 0, work);
}

Task<> LocalFabric::run_all_gather(const Operation& operation, Span buffer) {
  if (options_.link.on()) return Fabric::run_all_gather(operation, buffer);
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent(shard(buffer.count, size(), rank()).count * sizeof(float) * peers);
  const auto work = [this, &operation](Span mine) {
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      const Range part = shard(mine.count, size(), peer);
      copy(mine.at(part), offered_by(peer, operation, mine.count).at(part));
    }
  };
  return buffer.count <= kSmall ? direct_small(operation, Kind::all_gather, buffer, 0, work)
                                : direct(operation, Kind::all_gather, buffer, 0, work);
}

Task<> LocalFabric::run_all_reduce(const Operation& operation, Span buffer) {
  if (options_.link.on()) return Fabric::run_all_reduce(operation, buffer);
  const std::size_t part = shard(buffer.count, size(), rank()).count;
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent((buffer.count - part + part * peers) * sizeof(float));
  if (buffer.count <= kSmall)
    return direct_small(operation, Kind::all_reduce, buffer, 0,
                        [this, &operation](Span mine) { sum_all_shards(operation, mine); });
  return direct(operation, Kind::all_reduce, buffer, 0,
                [this, &operation](Span mine) { sum_and_hand_out(operation, mine); });
}

Task<> LocalFabric::run_all_reduce_small(const Operation& operation, Span buffer) {
  return options_.link.on() ? Fabric::run_all_reduce_small(operation, buffer)
                            : run_all_reduce(operation, buffer);
}

Task<> LocalFabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  if (options_.link.on()) return Fabric::run_broadcast(operation, buffer, root);
  if (rank() == root) count_sent(buffer.bytes() * (static_cast<std::size_t>(size()) - 1));
  const auto work = [this, &operation, root](Span mine) {
    if (rank() != root) copy(mine, offered_by(root, operation, mine.count));
  };
  return buffer.count <= kSmall ? direct_small(operation, Kind::broadcast, buffer, root, work)
                                : direct(operation, Kind::broadcast, buffer, root, work);
}

}  // namespace skein

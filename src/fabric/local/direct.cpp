// The local fabric's collectives on shared memory.
#include <fmt/format.h>

#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

using local::Desk;
using local::Offer;

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

template <typename Work>
Task<> LocalFabric::direct(const Operation& operation, Kind kind, Span buffer, int root, Work work) {
  Staged staged(*this, buffer);
  Desk& desk = own().header().desks[operation.channel];
  const std::uint64_t round = operation.sequence + 1;
  desk.offers[round % 2] = {static_cast<std::uint64_t>(kind), own().offset_of(staged.span().data), buffer.count,
                            static_cast<std::uint64_t>(root)};
  desk.offered.store(round, std::memory_order_release);
  ring_all();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Desk& other = segment(peer).header().desks[operation.channel];
    co_await wait_for(operation, peer, other.offered, round);
    check_offer(operation, peer, kind, buffer.count, root);
  }
  work(staged.span());
  desk.finished.store(round, std::memory_order_release);
  ring_all();
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Desk& other = segment(peer).header().desks[operation.channel];
    co_await wait_for(operation, peer, other.finished, round);
  }
  staged.finish();
}

// Every rank compares with every other, so a mismatch is an error on all of them.
void LocalFabric::check_offer(const Operation& operation, int peer, Kind kind, std::size_t count, int root) {
  const Offer& offer = segment(peer).header().desks[operation.channel].offers[(operation.sequence + 1) % 2];
  if (offer.kind == static_cast<std::uint64_t>(kind) && offer.count == count &&
      offer.root == static_cast<std::uint64_t>(root))
    return;
  throw IoError(fmt::format("{}: ranks disagree: rank {} has {} elements (kind {}, root {}), rank {} has {} "
                            "elements (kind {}, root {})",
                            describe(operation), rank(), count, static_cast<int>(kind), root, peer, offer.count,
                            offer.kind, offer.root),
                peer);
}

Span LocalFabric::offered_by(int peer, const Operation& operation, std::size_t count) {
  const Offer& offer = segment(peer).header().desks[operation.channel].offers[(operation.sequence + 1) % 2];
  return {segment(peer).at(offer.offset), count};
}

// In the ring's order, so that the sum has the same bits as on any other fabric.
void LocalFabric::sum_own_shard(const Operation& operation, Span buffer) {
  const Range mine = shard(buffer.count, size(), rank());
  std::array<const float*, local::kMostRanks> sources{};
  for (int i = 1; i <= size(); ++i) {
    const int peer = (rank() + i) % size();
    const Span whole = peer == rank() ? buffer : offered_by(peer, operation, buffer.count);
    sources[static_cast<std::size_t>(i) - 1] = whole.at(mine).data;
  }
  sum(buffer.at(mine), std::span(sources).first(static_cast<std::size_t>(size())));
}

Task<> LocalFabric::run_reduce_scatter(const Operation& operation, Span buffer) {
  if (options_.link.on()) {
    co_await Fabric::run_reduce_scatter(operation, buffer);
    co_return;
  }
  count_sent((buffer.count - shard(buffer.count, size(), rank()).count) * sizeof(float));
  co_await direct(operation, Kind::reduce_scatter, buffer, 0, [&](Span mine) { sum_own_shard(operation, mine); });
}

Task<> LocalFabric::run_all_gather(const Operation& operation, Span buffer) {
  if (options_.link.on()) {
    co_await Fabric::run_all_gather(operation, buffer);
    co_return;
  }
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent(shard(buffer.count, size(), rank()).count * sizeof(float) * peers);
  co_await direct(operation, Kind::all_gather, buffer, 0, [&](Span mine) {
    for (int i = 1; i < size(); ++i) {
      const int peer = (rank() + i) % size();
      const Range part = shard(buffer.count, size(), peer);
      copy(mine.at(part), offered_by(peer, operation, buffer.count).at(part));
    }
  });
}

Task<> LocalFabric::run_all_reduce(const Operation& operation, Span buffer) {
  if (options_.link.on()) {
    co_await Fabric::run_all_reduce(operation, buffer);
    co_return;
  }
  const Range part = shard(buffer.count, size(), rank());
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent((buffer.count - part.count + part.count * peers) * sizeof(float));
  co_await direct(operation, Kind::all_reduce, buffer, 0, [&](Span mine) {
    sum_own_shard(operation, mine);
    // Only this rank reads or writes this part of any buffer until all have finished.
    for (int i = 1; i < size(); ++i)
      copy(offered_by((rank() + i) % size(), operation, buffer.count).at(part), mine.at(part));
  });
}

Task<> LocalFabric::run_all_reduce_small(const Operation& operation, Span buffer) {
  return options_.link.on() ? Fabric::run_all_reduce_small(operation, buffer) : run_all_reduce(operation, buffer);
}

Task<> LocalFabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  if (options_.link.on()) {
    co_await Fabric::run_broadcast(operation, buffer, root);
    co_return;
  }
  if (rank() == root) count_sent(buffer.bytes() * (static_cast<std::size_t>(size()) - 1));
  co_await direct(operation, Kind::broadcast, buffer, root, [&](Span mine) {
    if (rank() != root) copy(mine, offered_by(root, operation, buffer.count));
  });
}

}  // namespace skein

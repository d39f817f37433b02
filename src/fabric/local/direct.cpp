// The local fabric's collectives on shared memory of the host.
#include <algorithm>
#include <array>
#include <span>
#include <thread>

#include "fabric/local/collective.h"
#include "kernels/kernels.h"

namespace skein {

using shm::Desk;

namespace {

// Elements after which whatever else can go on gets its turn: some ten microseconds of work.
constexpr std::size_t kPiece = 65536;

// How long a worker that gives up waits for a peer to end the block that it writes just now.
constexpr Duration kOneBlock = std::chrono::milliseconds(20);

}  // namespace

// On memory of the host. Who reads a peer's asks afterwards whether it was valid to the end, and
// who writes into it asks before each block.
class LocalFabric::HostCollective final : public Collective {
 public:
  HostCollective(LocalFabric& fabric, const Operation& operation, Kind kind, Span buffer, int root)
      : Collective(fabric, operation, kind, buffer, root) {}
  ~HostCollective() {
    if (!ended_) give_up();
  }

  // Buffers outside shared memory take part through a copy inside it.
  void use_buffer() {
    shared_ = buffer_;
    if (fabric_.own_->place_of(buffer_)) return;
    staged_ = fabric_.allocate_on(Device::cpu, buffer_.count, buffer_.type);
    shared_ = staged_->span();
    copy(shared_, buffer_);
  }

  // A small one takes part with a copy that stays as it is. There are two, used alternately. One is
  // written again only in the round after the next, and that begins when all peers have offered the
  // next: by then they are done with this one.
  void use_copy() {
    Span& copies = fabric_.small_copies_[operation_.channel];
    if (copies.count == 0) copies = fabric_.own_->allocate(2 * kSmall, Type::byte);
    const Span place = copies.at({round_ % 2 * kSmall, buffer_.bytes()});
    shared_ = {place.data, buffer_.count, Device::cpu, buffer_.type};
    copy(shared_, buffer_);
  }

  Task<> offer();
  Task<> wait_until_all_have_finished();
  Task<> work(Span into);
  void merge_all(std::span<std::byte> into, const Merge& merge) const;
  void check_peers() const;
  void end(bool copy_back) {
    ended_ = true;
    if (copy_back && staged_) copy(buffer_, shared_);
  }
  Span shared() const { return shared_; }

 private:
  template <typename Do>
  Task<> in_pieces(Range part, Do act);
  void sum_part(Span into, int owner, Range part) const;
  void sum_and_hand_out(Span into, Range part);
  void give_up();
  bool is_written_to() const;

  std::uint64_t offered_part_ = 0;  // of the own file, as the peers know it
  std::vector<Span> all_;           // of each rank, once offered
};

Task<> LocalFabric::HostCollective::offer() {
  const auto place = fabric_.own_->place_of(shared_);
  offered_part_ = place->part;
  co_await Collective::offer(*place, 0);
  all_.resize(static_cast<std::size_t>(fabric_.size()));
  for (int rank = 0; rank < fabric_.size(); ++rank)
    all_[static_cast<std::size_t>(rank)] =
        rank == fabric_.rank()
            ? shared_
            : fabric_.state(rank).segment->at(offer_of(rank).place, buffer_.type);
}

Task<> LocalFabric::HostCollective::wait_until_all_have_finished() {
  co_await meet(&Desk::finished);
  // Another operation on this memory may have been given up, and the memory moved.
  if (fabric_.own_->place_of(shared_)->part != offered_part_)
    throw IoError(fmt::format("{}: another operation on the same memory did not end well",
                              describe(operation_)));
}

// Whether what was read was valid to the end.
void LocalFabric::HostCollective::check_peers() const {
  shm::end_reading(fabric_.own_->header());
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank() && has_given_up(peer)) lost(peer);
}

// In the ring's order, so that the sum has the same bits as on any other fabric.
void LocalFabric::HostCollective::sum_part(Span into, int owner, Range part) const {
  std::array<const float*, kMostWorkersOfAHost> sources;
  const auto size = static_cast<std::size_t>(fabric_.size());
  for (std::size_t i = 1; i <= size; ++i) {
    const std::size_t peer = (static_cast<std::size_t>(owner) + i) % size;
    const bool own = peer == static_cast<std::size_t>(fabric_.rank());
    sources[i - 1] = (own ? into : all_[peer]).at(part).host().data();
  }
  sum(into.at(part), std::span(sources).first(size));
}

// Sums a part of the own shard and writes the result into all buffers: only this rank touches this
// shard of any of them until all have finished. Block by block, so that what is written is still in
// the cache.
void LocalFabric::HostCollective::sum_and_hand_out(Span into, Range whole) {
  constexpr std::size_t kBlock = 4096;
  auto& writing = desk(fabric_.rank()).writing;
  for (std::size_t at = whole.offset; at < whole.end(); at += kBlock) {
    const Range block{at, std::min(kBlock, whole.end() - at)};
    sum_part(into, fabric_.rank(), block);
    writing.store(round_, std::memory_order_seq_cst);
    for (int i = 1; i < fabric_.size(); ++i) {
      const int peer = (fabric_.rank() + i) % fabric_.size();
      if (has_given_up(peer)) {
        writing.store(0, std::memory_order_release);
        lost(peer);
      }
      copy(all_[static_cast<std::size_t>(peer)].at(block), into.at(block));
    }
    writing.store(0, std::memory_order_release);
  }
}

template <typename Do>
Task<> LocalFabric::HostCollective::in_pieces(Range part, Do act) {
  for (std::size_t at = part.offset; at < part.end(); at += kPiece) {
    if (at > part.offset) co_await fabric_.loop().yield();
    act(Range{at, std::min(kPiece, part.end() - at)});
    fabric_.came_further();
  }
}

Task<> LocalFabric::HostCollective::work(Span into) {
  const int size = fabric_.size(), own = fabric_.rank();
  const auto take_from = [&](int peer, Range piece) {
    copy(into.at(piece), all_[static_cast<std::size_t>(peer)].at(piece));
  };
  switch (kind_) {
    case Kind::reduce_scatter:
      co_await in_pieces(part_of(own), [&](Range piece) { sum_part(into, own, piece); });
      break;
    case Kind::all_gather:
      for (int i = 1; i < size; ++i) {
        const int peer = (own + i) % size;
        co_await in_pieces(part_of(peer), [&](Range piece) { take_from(peer, piece); });
      }
      break;
    case Kind::all_reduce:
      if (buffer_.bytes() > kSmall)
        co_await in_pieces(part_of(own), [&](Range piece) { sum_and_hand_out(into, piece); });
      else
        for (int owner = 0; owner < size; ++owner) sum_part(into, owner, part_of(owner));
      break;
    case Kind::broadcast:
      if (own != root_)
        co_await in_pieces({0, into.count}, [&](Range piece) { take_from(root_, piece); });
      break;
    case Kind::combine:
      break;
  }
}

void LocalFabric::HostCollective::merge_all(std::span<std::byte> into, const Merge& merge) const {
  std::ranges::copy(all_.front().host_bytes(), into.begin());
  for (std::size_t rank = 1; rank < all_.size(); ++rank) merge(into, all_[rank].host_bytes());
}

bool LocalFabric::HostCollective::is_written_to() const {
  for (int peer = 0; peer < fabric_.size(); ++peer)
    if (peer != fabric_.rank() && fabric_.trouble_with(peer, true).empty() &&
        desk(peer).writing.load(std::memory_order_seq_cst) == round_)
      return true;
  return false;
}

// A peer that has been stopped in the middle of a block will write the rest of it whenever it goes
// on: that memory is left to it.
void LocalFabric::HostCollective::give_up() {
  say_that_it_is_over();
  if (!offered_ || kind_ != Kind::all_reduce || buffer_.bytes() <= kSmall) return;
  const SteadyClock clock;
  for (const Time until = clock.now() + kOneBlock; is_written_to();) {
    if (clock.now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      continue;
    }
    if (!staged_) fabric_.own_->move_away(shared_);
    static_cast<void>(staged_.release());
    return;
  }
}

Task<> LocalFabric::run_small(const Operation& operation, Kind kind, Span buffer, int root) {
  HostCollective collective(*this, operation, kind, buffer, root);
  collective.use_copy();
  co_await collective.offer();
  co_await collective.work(buffer);
  collective.end(false);
}

Task<> LocalFabric::run_large(const Operation& operation, Kind kind, Span buffer, int root) {
  HostCollective collective(*this, operation, kind, buffer, root);
  collective.use_buffer();
  co_await collective.offer();
  co_await collective.work(collective.shared());
  collective.check_peers();
  co_await collective.wait_until_all_have_finished();
  collective.end(true);
}

Task<> LocalFabric::run(const Operation& operation, Kind kind, Span buffer, int root) {
  if (buffer.device.kind == Device::gpu) return run_on_device(operation, kind, buffer, root);
  return buffer.bytes() <= Collective::kSmall ? run_small(operation, kind, buffer, root)
                                              : run_large(operation, kind, buffer, root);
}

Task<> LocalFabric::run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) {
  if (by_messages(buffer, wire))
    return MessageCollectives::run_reduce_scatter(operation, buffer, wire);
  count_sent((buffer.count - shard(buffer.count, size(), rank()).count) * size_of(buffer.type));
  return run(operation, Kind::reduce_scatter, buffer);
}

Task<> LocalFabric::run_all_gather(const Operation& operation, Span buffer, Wire wire) {
  if (by_messages(buffer, wire)) return MessageCollectives::run_all_gather(operation, buffer, wire);
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent(shard(buffer.count, size(), rank()).count * size_of(buffer.type) * peers);
  return run(operation, Kind::all_gather, buffer);
}

Task<> LocalFabric::run_all_reduce(const Operation& operation, Span buffer, Wire wire) {
  if (by_messages(buffer, wire)) return MessageCollectives::run_all_reduce(operation, buffer, wire);
  const std::size_t part = shard(buffer.count, size(), rank()).count;
  const auto peers = static_cast<std::size_t>(size()) - 1;
  count_sent((buffer.count - part + part * peers) * size_of(buffer.type));
  return run(operation, Kind::all_reduce, buffer);
}

// What the peers read stays as it is until all have read it.
Task<> LocalFabric::run_combine(const Operation& operation, Span record, const Merge& merge) {
  if (by_messages(record)) {
    co_await MessageCollectives::run_combine(operation, record, merge);
    co_return;
  }
  count_sent(record.bytes() * (static_cast<std::size_t>(size()) - 1));
  const bool small = record.bytes() <= Collective::kSmall;
  const auto merged = allocate_on_heap_of(Type::byte, record.count);
  HostCollective collective(*this, operation, Kind::combine, record, 0);
  small ? collective.use_copy() : collective.use_buffer();
  co_await collective.offer();
  collective.merge_all(merged->span().host_bytes(), merge);
  if (!small) {
    collective.check_peers();
    co_await collective.wait_until_all_have_finished();
  }
  collective.end(false);
  copy(record, merged->span());
}

Task<> LocalFabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  if (by_messages(buffer)) return MessageCollectives::run_broadcast(operation, buffer, root);
  if (rank() == root) count_sent(buffer.bytes() * (static_cast<std::size_t>(size()) - 1));
  return run(operation, Kind::broadcast, buffer, root);
}

}  // namespace skein

// One collective of a worker and its peers' parts in it. Only the local fabric includes this.
#pragma once

#include "fabric/local/peer_state.h"

namespace skein {

// A worker offers its memory, waits until all have offered theirs, and uses what they offered. One
// whose operation ends before its time says so, and from then on nobody uses its memory.
class LocalFabric::Collective {
 public:
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Bytes up to which one more copy costs less than one more meeting of all ranks.
  static constexpr std::size_t kSmall = 16384;           // on the host
  static constexpr std::size_t kSmallOnDevice = 262144;  // where passes take long to start

 protected:
  Collective(LocalFabric& fabric, const Operation& operation, Kind kind, Span buffer, int root)
      : fabric_(fabric),
        operation_(operation),
        round_(++fabric.direct_rounds_[operation.channel]),
        kind_(kind),
        root_(root),
        buffer_(buffer) {}
  ~Collective() = default;

  // Puts the own memory where the peers look for it and waits until all have done the same.
  Task<> offer(const shm::Place& place, std::uint64_t ready);
  const shm::Offer& offer_of(int peer) const { return desk(peer).offers[round_ % 2]; }

  // Says that this worker has come to a step of the collective, and waits until all have.
  Task<> meet(std::atomic<std::uint64_t> shm::Desk::*step);

  // Tells the peers that this worker has given the collective up.
  void say_that_it_is_over() {
    desk(fabric_.rank()).given_up.exchange(round_, std::memory_order_seq_cst);
    fabric_.ring_all();
  }
  bool has_given_up(int rank) const {
    const std::uint64_t since = desk(rank).given_up.load(std::memory_order_seq_cst);
    return since != 0 && since <= round_;
  }
  [[noreturn]] void lost(int peer) const;

  shm::Desk& desk(int rank) const { return fabric_.header(rank).desks[operation_.channel]; }
  Range part_of(int rank) const { return shard(buffer_.count, fabric_.size(), rank); }

  LocalFabric& fabric_;
  const Operation operation_;
  const std::uint64_t round_;
  const Kind kind_;
  const int root_;
  Span buffer_, shared_;            // the caller's, and what the peers see of it
  std::unique_ptr<Memory> staged_;  // shared_, where peers cannot reach the caller's
  bool offered_ = false, ended_ = false;

 private:
  void check_offer(int peer) const;
};

}  // namespace skein

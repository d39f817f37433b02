// A fabric of workers that share hosts: each message goes through its host where it can, and
// collectives run in two levels, inside every host and between hosts, so that what crosses the
// network does so once for each host.
#pragma once

#include <memory>
#include <vector>

#include "fabric/forwarding.h"

namespace skein {

// Which ranks share a host.
class Hosts {
 public:
  // By rank; numbers that are equal say that a host is shared.
  explicit Hosts(std::vector<int> host_of);

  // The ranks of the host that `rank` is on, in their order.
  std::vector<int> mates(int rank) const;

  int count() const { return count_; }

  // How many ranks each host has, where all have equally many and ranks of a host follow each
  // other; 0 otherwise.
  int each() const { return each_; }

  bool shared() const { return count_ < static_cast<int>(host_of_.size()); }

 private:
  std::vector<int> host_of_;
  int count_ = 0;
  int each_ = 0;
};

// Two levels need hosts with equally many workers, whose ranks follow each other:
//   reduce-scatter  inside each host; then each worker sums its part with those who hold the same
//                   part on the other hosts
//   all-gather      the other way round
//   combine         inside, then between; every worker of a host does the same
//   broadcast       to one worker of each host, then inside
// So part p of a sum is added up in the order of a ring inside each host, and these sums in the
// order of a ring of hosts: not the bits of a flat ring, but the same ones on every fabric and in
// every run. With bfloat16 on the wire only what goes between hosts is rounded.
//
// Where hosts have unequal numbers, collectives are those of any fabric. A ring whose ranks follow
// each other in a host crosses the network once for each host too.
class LevelsFabric final : public ForwardingFabric, private MessageCollectives {
 public:
  // All messages are those of `whole`, in levels all the same where workers share hosts.
  LevelsFabric(std::unique_ptr<Fabric> whole, const Hosts& hosts);

  // `inside` joins the ranks of this worker's host, in their order. `events`: where the loop's
  // thread sleeps for both.
  LevelsFabric(std::unique_ptr<Fabric> whole, std::unique_ptr<Fabric> inside, const Hosts& hosts,
               std::unique_ptr<EventSource> events = nullptr);
  ~LevelsFabric() override;

  Traits traits() const override;
  EventSource* events() override { return events_ ? events_.get() : ForwardingFabric::events(); }
  Route route(int peer, Channel channel) override;

 private:
  Range part_of(std::size_t count, int rank) const override;
  Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_combine(const Operation& operation, Span record, const Merge& merge) override;
  Task<> run_broadcast(const Operation& operation, Span buffer, int root) override;

  void make_levels(const Hosts& hosts);

  // What this worker sums with others between hosts.
  Span lane(Span buffer) const;

  std::unique_ptr<EventSource> events_;
  std::unique_ptr<Fabric> whole_;
  std::unique_ptr<Fabric> inside_;   // null: this worker is alone on its host
  std::unique_ptr<Fabric> between_;  // null: there are no levels
  std::vector<int> mates_;
  int each_;
};

}  // namespace skein

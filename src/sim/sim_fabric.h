// The fabric of a virtual worker.
#pragma once

#include <vector>

#include "fabric/carrier_fabric.h"
#include "sim/cluster.h"

namespace skein::sim {

// The primitives on the cluster's streams; the collectives are those of every fabric.
class SimFabric final : public CarrierFabric {
 public:
  SimFabric(Cluster& cluster, int rank);

  std::string name() const override { return "sim"; }
  Cluster& cluster() const { return cluster_; }
  Traits traits() const override;
  void fail(const std::string& reason) override;
  Time latest_sign() const override { return progress_; }
  void pass_on(Time sign) override { progress_ = std::max(progress_, sign); }

  // When this worker, or one that it waits for, last made progress, as far as who asks can
  // know. `seen` are those whom the question has passed.
  Time last_sign(std::vector<int>& seen) const;

 protected:
  bool carries(Span) const override { return true; }
  std::unique_ptr<Line> open_line(int peer, Channel channel, bool outgoing) override;
  bool try_post(const Operation& operation, Line& line, Span data) override;
  Task<> wait_for_room(const Operation& operation, Line& line) override;
  bool all_taken(Line& line) override;
  Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) override;
  Task<> take(const Operation& operation, Line& line, Span into, Combine combine) override;
  void close_line(Line& line) override;

 private:
  struct SimLine;
  class Waiting;

  void check_peer(const Operation& operation, int peer) const;
  // The streams are those of the first process: a later one must not touch them.
  void check_first_life(const Operation& operation, int peer) const {
    if (cluster_.restarted(rank())) check_peer(operation, peer);
  }

  Cluster& cluster_;
  Time progress_{};
  std::vector<int> waits_for_;  // peers whose silence would end an operation
};

}  // namespace skein::sim

// The fabric of a virtual worker.
#pragma once

#include <unordered_map>

#include "fabric/fabric.h"
#include "sim/cluster.h"

namespace skein::sim {

// The primitives on the cluster's streams; the collectives are those of every fabric.
class SimFabric final : public Fabric {
 public:
  SimFabric(Cluster& cluster, int rank);

  std::string name() const override { return "sim"; }
  int rank() const override { return rank_; }
  int size() const override { return cluster_.size(); }
  Cluster& cluster() const { return cluster_; }
  Chunking chunking() const override;
  void fail(const std::string& reason) override;

  Task<> start_send(const Operation& operation, int peer, Span data) override;
  Task<> finish_sends(const Operation& operation, int peer) override;
  Task<> receive_into(const Operation& operation, int peer, Span into, Combine combine) override;

 private:
  using Streams = std::unordered_map<std::uint64_t, Stream*>;
  Stream& find(Streams& streams, int peer, Channel channel, bool outgoing);
  void check_peer(const Operation& operation, int peer) const;
  // The streams are those of the first process: a later one must not touch them.
  void check_first_life(const Operation& operation, int peer) const {
    if (cluster_.restarted(rank_)) check_peer(operation, peer);
  }
  [[noreturn]] void too_late(const Operation& operation, int peer) const;

  Cluster& cluster_;
  int rank_;
  Streams outgoing_, incoming_;
};

}  // namespace skein::sim

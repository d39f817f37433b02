// The fabric of worker processes on one host.
//
// Arenas lie in shared memory, so collectives read peers' memory directly: a reduce-scatter is one
// pass over the peers' shards, an all-reduce writes its result straight into the peers' buffers.
// With an emulated link it behaves like hosts on a network instead: collectives run on messages,
// whose arrival the link delays.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fabric/fabric.h"
#include "fabric/local/doorbell.h"
#include "fabric/local/link.h"
#include "fabric/local/segment.h"

namespace skein {

struct LocalOptions {
  std::string run_id;  // the same for all workers of the run, different from other runs'
  int rank = 0;
  int size = 1;
  Duration join_timeout = std::chrono::seconds(60);
  LinkEmulation link;
};

class LocalFabric final : public Fabric {
 public:
  // Blocks until all workers are there.
  LocalFabric(Loop& loop, const LocalOptions& options);
  ~LocalFabric() override;  // peers that still wait for this rank get IoError

  std::string name() const override { return "local"; }
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::unique_ptr<Memory> allocate(std::size_t count) override;
  EventSource* events() override { return &doorbell_; }
  void fail(const std::string& reason) override;
  std::optional<bool> expel(int peer) override;
  bool expelled(int rank) const override;

  Task<> start_send(const Operation& operation, int peer, Span data) override;
  Task<> finish_sends(const Operation& operation, int peer) override;
  Task<> receive_into(const Operation& operation, int peer, Span into, Combine combine) override;

 protected:
  Task<> run_reduce_scatter(const Operation& operation, Span buffer) override;
  Task<> run_all_gather(const Operation& operation, Span buffer) override;
  Task<> run_all_reduce(const Operation& operation, Span buffer) override;
  Task<> run_all_reduce_small(const Operation& operation, Span buffer) override;
  Task<> run_broadcast(const Operation& operation, Span buffer, int root) override;

 private:
  enum class Kind : std::uint64_t { reduce_scatter = 1, all_gather, all_reduce, broadcast };
  class Staged;
  struct PeerState;

  LocalFabric(Loop& loop, const LocalOptions& options,
              const std::shared_ptr<local::Segment>& own_segment);
  static std::vector<std::shared_ptr<local::Segment>> meet_and_map(
      const LocalOptions& options, const std::shared_ptr<local::Segment>& own,
      std::vector<std::unique_ptr<PeerState>>& peers);

  local::Segment& own() { return *segments_[static_cast<std::size_t>(options_.rank)]; }
  local::Segment& segment(int rank) { return *segments_[static_cast<std::size_t>(rank)]; }
  PeerState& state(int peer) { return *peers_[static_cast<std::size_t>(peer)]; }
  void ring_all();

  // Why `peer` will never answer, or empty. Asks the system whether it lives only if `look`.
  std::string trouble_with(int peer, bool look);

  // Waits until `counter`, which `peer` raises, has reached `value`.
  Task<> wait_for(const Operation& operation, int peer, const std::atomic<std::uint64_t>& counter,
                  std::uint64_t value);

  // A collective on shared memory: offer `buffer`, wait for all offers, `work`, wait until all are
  // done. A small one offers a copy instead, and then need not wait until all are done.
  template <typename Work>
  Task<> direct(const Operation& operation, Kind kind, Span buffer, int root, Work work);
  template <typename Work>
  Task<> direct_small(const Operation& operation, Kind kind, Span buffer, int root, Work work);
  Task<> offer(const Operation& operation, Kind kind, Span shared, int root);
  Span offered_by(int rank, const Operation& operation, std::size_t count);
  void check_offer(const Operation& operation, int peer, Kind kind, std::size_t count, int root);
  void sum_part(const Operation& operation, Span buffer, int owner, Range part);
  void sum_own_shard(const Operation& operation, Span buffer);
  void sum_all_shards(const Operation& operation, Span buffer);
  void sum_and_hand_out(const Operation& operation, Span buffer);

  LocalOptions options_;
  std::vector<std::unique_ptr<PeerState>> peers_;
  std::vector<std::shared_ptr<local::Segment>> segments_;  // own memory may outlive the fabric
  std::array<Span, kChannels> small_copies_{};  // never given back: a peer may read them to the end
  local::Doorbell doorbell_;
  local::Lane egress_, ingress_;
};

}  // namespace skein

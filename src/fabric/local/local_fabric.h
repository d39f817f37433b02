// The fabric of worker processes on one host.
//
// Arenas lie in shared memory, so collectives read peers' memory directly: a reduce-scatter is one
// pass over the peers' shards, an all-reduce writes its result straight into the peers' buffers.
// Memory of devices likewise, where all can open it (meet_on_device); there, nobody writes into
// another's.
// With an emulated link it behaves like hosts on a network instead: collectives run on messages,
// whose arrival the link delays.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulate/link.h"
#include "fabric/carrier_fabric.h"
#include "fabric/local/device_side.h"
#include "fabric/local/doorbell.h"
#include "fabric/local/segment.h"

namespace skein {

struct LocalOptions {
  std::string run_id;  // the same for all workers of the run, different from other runs'
  int rank = 0;
  int size = 1;
  Duration join_timeout = std::chrono::seconds(60);
  LinkEmulation link;

  // Where these are some of a run's workers: the run's rank of each, and that they sleep on a
  // descriptor, with others (shm::Doorbell::arm).
  std::vector<int> names = {};
  bool descriptor = false;
};

class LocalFabric final : public CarrierFabric {
 public:
  // Blocks until all workers are there.
  LocalFabric(Loop& loop, const LocalOptions& options);
  ~LocalFabric() override;  // peers that still wait for this rank get IoError

  std::string name() const override { return "local"; }
  EventSource* events() override { return &doorbell_; }
  shm::Doorbell& doorbell() { return doorbell_; }
  void fail(const std::string& reason) override;
  std::optional<bool> expel(int peer) override;
  bool expelled(int rank) const override;
  Time latest_sign() const override;
  void pass_on(Time sign) override;
  Task<> meet_on_device(Limit limit) override;
  std::string why_staged() const override { return why_staged_; }
  std::unique_ptr<Memory> allocate_on(Device::Kind kind, std::size_t count, Type type) override;

 protected:
  bool carries(Span data) const override {
    return data.device.kind != Device::gpu ||
           (device_ && &device_->queue() == loop().queue() && !options_.link.on());
  }
  std::unique_ptr<Line> open_line(int peer, Channel channel, bool outgoing) override;
  bool try_post(const Operation& operation, Line& line, Span data) override;
  Task<> wait_for_room(const Operation& operation, Line& line) override;
  bool all_taken(Line& line) override;
  Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) override;
  Task<> take(const Operation& operation, Line& line, Span into, Combine combine) override;
  void close_line(Line& line) override;

  std::unique_ptr<Memory> allocate_staging(std::size_t count, Type type) override {
    return allocate_on(Device::cpu, count, type);
  }
  Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire) override;
  Task<> run_combine(const Operation& operation, Span record, const Merge& merge) override;
  Task<> run_broadcast(const Operation& operation, Span buffer, int root) override;

 private:
  enum class Kind : std::uint32_t {
    reduce_scatter = 1,
    all_gather,
    all_reduce,
    broadcast,
    combine
  };
  struct LocalLine;
  struct PeerState;
  class Collective;
  class HostCollective;
  class DeviceCollective;

  LocalFabric(Loop& loop, const LocalOptions& options, std::shared_ptr<shm::OwnSegment> own);
  void meet();

  // Throws ConfigError when the host has not the memory that its workers have been given and not
  // touched yet, the last so many bytes included.
  void require_room(std::size_t bytes) const;

  // progressed() on the way of every block: no sign is later than the present.
  void came_further() {
    own_->header().progress_ns.store(SteadyClock().now().time_since_epoch().count(),
                                     std::memory_order_relaxed);
  }

  shm::Header& header(int rank) const;
  PeerState& state(int peer) { return *peers_[static_cast<std::size_t>(peer)]; }
  void ring(int peer);
  void ring_all();

  // What the run calls a worker: errors name no other rank.
  int named(int peer) const {
    return options_.names.empty() ? peer : options_.names[static_cast<std::size_t>(peer)];
  }

  // Why `peer` will never answer, or empty. Asks the system whether it lives only if `look`.
  std::string trouble_with(int peer, bool look);

  // What another rank than `peer` says that it failed of, to be added to an error about `peer`.
  std::string failure_besides(int peer);

  // When there was last a sign of progress from `peer`, which is passed on to those who wait for
  // this worker.
  Time last_sign(int peer);

  // Whether a collective is made of messages: through an emulated link, of halves, and from memory
  // that peers cannot read.
  bool by_messages(Span buffer, Wire wire = Wire::f32) const {
    return options_.link.on() || wire == Wire::bf16 || !carries(buffer);
  }

  // Waits until `reached()`, which `peer` brings about. It never will if `given_up()`.
  template <typename Reached, typename GivenUp>
  Task<> wait_for(const Operation& operation, int peer, Reached reached, GivenUp given_up);

  Task<> run_small(const Operation& operation, Kind kind, Span buffer, int root);
  Task<> run_large(const Operation& operation, Kind kind, Span buffer, int root);
  Task<> run(const Operation& operation, Kind kind, Span buffer, int root = 0);
  Task<> run_on_device(const Operation& operation, Kind kind, Span buffer, int root);

  // Waits until the peers have read what they were offered, or do not go on; briefly.
  void leave_device();

  // What a worker says of its device when all meet.
  struct DeviceAnswer;
  Task<std::vector<DeviceAnswer>> hear_all(DeviceAnswer own, Limit limit);
  std::string first_trouble(const std::vector<DeviceAnswer>& answers) const;
  std::unique_ptr<Memory> prepare_device(DeviceAnswer& answer);
  Task<std::string> read_probes(std::vector<DeviceAnswer> answers);

  // What a message's line tells the peer of it, and what the peer does with that.
  shm::Letter letter(LocalLine& line, Span data);
  void take_from_host(LocalLine& line, const shm::Letter& letter, Span into, Combine combine);

  // The same in memory of devices.
  shm::Letter device_letter(LocalLine& line, Span data);
  Task<> take_from_device(const Operation& operation, LocalLine& line, const shm::Letter& letter,
                          Span into, Combine combine);
  Task<> until_ready(const Operation& operation, LocalLine& line, const shm::Letter& letter);
  void wait_for_readers(LocalLine& line);

  LocalOptions options_;
  std::vector<std::unique_ptr<PeerState>> peers_;
  std::shared_ptr<shm::OwnSegment> own_;            // its memory may outlive the fabric
  std::unordered_map<Channel, Span> small_copies_;  // never given back: a peer may read them
  std::unordered_map<Channel, std::uint64_t> direct_rounds_;  // collectives made on shared memory
  std::unique_ptr<DeviceSide> device_;  // null: memory of devices goes through the host
  struct SmallOnDevice {
    std::uint64_t count = 0, last = 0;  // so far, and the last one's round
  };
  std::unordered_map<Channel, SmallOnDevice> small_on_device_;
  std::string why_staged_;
  shm::Doorbell doorbell_;
  LinkLane egress_, ingress_;
};

}  // namespace skein

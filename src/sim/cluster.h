// The machines of a virtual cluster and the network between them, with what can go wrong there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/rng.h"
#include "fabric/levels.h"
#include "sim/buffers.h"
#include "sim/engine.h"
#include "sim/network.h"
#include "sim/stream.h"
#include "sim/traffic.h"

namespace skein::sim {

class SimFabric;

// Owns engine, traffic, and one loop and fabric per worker. Workers fill the hosts in order of
// rank.
class Cluster {
 public:
  // `queue`: see Engine.
  Cluster(int workers, Network network, std::uint64_t seed, Queue* queue = nullptr);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  int size() const { return static_cast<int>(machines_.size()); }
  int hosts() const { return host_of(size() - 1) + 1; }
  int host_of(int rank) const { return rank / network_.workers_per_host; }
  const Network& network() const { return network_; }
  Engine& engine() { return engine_; }
  Traffic& traffic() { return traffic_; }
  Loop& loop(int rank) { return engine_.loop(rank); }
  Fabric& fabric(int rank);

  // Starts a worker's program at the loop's next turn. Its jobs end with the worker.
  Job spawn(int rank, Task<> task);

  // The worker's process ends: its jobs and what it had not sent are gone. Peers that wait for it
  // learn `why` ("which died") a latency later; with an empty text they never do (a host that lost
  // its power), and only their deadlines help.
  void end_process(int rank, const std::string& why);
  // Starts it anew, with a fabric that knows nobody. Whoever is left refuses it, and it them.
  void restart_process(int rank);
  bool running(int rank) const { return machine(rank).running; }
  bool paused(int rank) const { return machine(rank).pauses > 0; }
  bool restarted(int rank) const { return machine(rank).incarnation > 0; }

  // Like SIGSTOP and SIGCONT, but pauses nest: each ends with a resume of its own. What arrives
  // meanwhile is kept. No effect on a process that has ended.
  void pause(int rank);
  void resume(int rank);
  Duration paused_time(int rank) const;  // in all, until now

  // Nothing passes between `group` and the rest until heal(); connections last. Returns its number.
  int partition(std::set<int> group);
  void heal(int partition);

  // Every message to or from the worker takes this much longer; the sum of all calls counts.
  void add_delay(int rank, Duration extra);

  // What the fabrics and streams need.
  enum Happening : std::uint64_t { kSent = 1, kArrived, kEnded, kFault, kStep };
  Stream& stream(int from, int to, Channel channel);
  std::vector<Traffic::LinkId> route(int from, int to);
  bool cut(int from, int to) const;
  Duration delay(int from, int to);
  // When `peer`, or one that it waits for, last made progress, as far as `rank` can know.
  Time last_sign(int rank, int peer, std::vector<int>& seen) const;
  std::string trouble(int rank, int peer) const;  // why `rank` cannot hear from it any more, or ""
  Buffers& buffers() { return buffers_; }
  void announce(int rank, const std::string& why);

 private:
  struct Machine {
    std::unique_ptr<Fabric> fabric;
    SimFabric* base = nullptr;  // of the fabric, or the fabric itself
    Traffic::LinkId local_out{}, local_in{};
    bool running = true;
    int incarnation = 0;
    std::string trouble;  // as its peers see it
    int pauses = 0;       // under way
    Time paused_at{};
    Duration paused_total{};
    Duration extra_delay{};
    std::vector<Stream*> streams;
  };
  struct HostLinks {
    Traffic::LinkId out, in;
  };

  void make_fabric(int rank);
  Machine& machine(int rank) { return machines_[static_cast<std::size_t>(rank)]; }
  const Machine& machine(int rank) const { return machines_[static_cast<std::size_t>(rank)]; }
  const LinkOverride* override_of(int from_host, int to_host) const;
  void wake_peers_of(int rank);

  Network network_;
  Buffers buffers_;  // streams hold some of them
  Engine engine_;
  Traffic traffic_{engine_};
  Rng jitter_;
  std::optional<Hosts> shared_hosts_;  // where fabrics have two levels
  std::vector<HostLinks> host_links_;
  std::map<std::pair<int, int>, Traffic::LinkId> override_links_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Machine> machines_;
  std::map<int, std::set<int>> partitions_;
  int next_partition_ = 0;
};

}  // namespace skein::sim

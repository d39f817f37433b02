#include "sim/cluster.h"

#include <algorithm>

#include "sim/sim_fabric.h"

namespace skein::sim {

Cluster::Cluster(int workers, Network network, std::uint64_t seed, Queue* queue)
    : network_(std::move(network)),
      buffers_(queue),
      engine_(queue),
      jitter_(Rng(seed).split(0x6a697474)) {
  SKEIN_CHECK(workers >= 1 && network_.workers_per_host >= 1, "{} workers, {} per host", workers,
              network_.workers_per_host);
  machines_.resize(static_cast<std::size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) {
    engine_.add_loop();
    Machine& each = machine(rank);
    each.local_out = traffic_.add_link(network_.local_bytes_per_second);
    each.local_in = traffic_.add_link(network_.local_bytes_per_second);
  }
  if (network_.two_levels && network_.workers_per_host > 1 && hosts() > 1) {
    std::vector<int> host_of_rank(machines_.size());
    for (int rank = 0; rank < workers; ++rank)
      host_of_rank[static_cast<std::size_t>(rank)] = host_of(rank);
    shared_hosts_.emplace(std::move(host_of_rank));
  }
  for (int rank = 0; rank < workers; ++rank) make_fabric(rank);
  for (int host = 0; host < hosts(); ++host)
    host_links_.push_back({traffic_.add_link(network_.bytes_per_second),
                           traffic_.add_link(network_.bytes_per_second)});
}

Cluster::~Cluster() {
  // Jobs refer to fabrics and streams, so they go first.
  for (int rank = 0; rank < size(); ++rank) engine_.stop(rank);
}

void Cluster::make_fabric(int rank) {
  auto base = std::make_unique<SimFabric>(*this, rank);
  Machine& each = machine(rank);
  each.base = base.get();
  each.fabric = std::move(base);
  if (!shared_hosts_) return;
  each.fabric = std::make_unique<LevelsFabric>(std::move(each.fabric), *shared_hosts_);
}

Fabric& Cluster::fabric(int rank) { return *machine(rank).fabric; }

Job Cluster::spawn(int rank, Task<> task) {
  engine_.wake(rank);
  return loop(rank).spawn(std::move(task));
}

void Cluster::end_process(int rank, const std::string& why) {
  Machine& each = machine(rank);
  if (!each.running) return;
  engine_.record(kEnded, static_cast<std::uint64_t>(rank));
  each.running = false;
  if (each.pauses > 0) each.paused_total += engine_.now() - each.paused_at;
  each.pauses = 0;
  engine_.stop(rank);
  for (Stream* stream : each.streams)
    if (stream->from() == rank) stream->drop_unsent();
  if (!why.empty()) announce(rank, why);
}

void Cluster::restart_process(int rank) {
  Machine& each = machine(rank);
  SKEIN_CHECK(!each.running, "rank {} is running", rank);
  engine_.restart(rank);
  each.running = true;
  ++each.incarnation;
  make_fabric(rank);
  announce(rank, "which was started anew");
}

void Cluster::pause(int rank) {
  Machine& each = machine(rank);
  if (!each.running || each.pauses++ > 0) return;
  each.paused_at = engine_.now();
  engine_.pause(rank);
}

void Cluster::resume(int rank) {
  Machine& each = machine(rank);
  if (each.pauses == 0 || --each.pauses > 0) return;
  each.paused_total += engine_.now() - each.paused_at;
  engine_.resume(rank);
}

Duration Cluster::paused_time(int rank) const {
  const Machine& each = machine(rank);
  return each.paused_total + (each.pauses > 0 ? engine_.now() - each.paused_at : Duration(0));
}

int Cluster::partition(std::set<int> group) {
  partitions_.emplace(next_partition_, std::move(group));
  for (const auto& stream : streams_) stream->reroute();
  return next_partition_++;
}

void Cluster::heal(int partition) {
  partitions_.erase(partition);
  for (const auto& stream : streams_) stream->reroute();
  for (int rank = 0; rank < size(); ++rank)
    if (!machine(rank).trouble.empty()) wake_peers_of(rank);
}

void Cluster::add_delay(int rank, Duration extra) { machine(rank).extra_delay += extra; }

bool Cluster::cut(int from, int to) const {
  return std::any_of(partitions_.begin(), partitions_.end(), [&](const auto& partition) {
    return partition.second.contains(from) != partition.second.contains(to);
  });
}

const LinkOverride* Cluster::override_of(int from_host, int to_host) const {
  for (auto link = network_.links.rbegin(); link != network_.links.rend(); ++link)
    if ((link->from < 0 || link->from == from_host) && (link->to < 0 || link->to == to_host))
      return &*link;
  return nullptr;
}

std::vector<Traffic::LinkId> Cluster::route(int from, int to) {
  const int a = host_of(from), b = host_of(to);
  if (a == b) return {machine(from).local_out, machine(to).local_in};
  std::vector<Traffic::LinkId> links{host_links_[static_cast<std::size_t>(a)].out,
                                     host_links_[static_cast<std::size_t>(b)].in};
  if (const LinkOverride* link = override_of(a, b)) {
    const auto found = override_links_.try_emplace({a, b});
    if (found.second) found.first->second = traffic_.add_link(link->bytes_per_second);
    links.push_back(found.first->second);
  }
  return links;
}

Duration Cluster::delay(int from, int to) {
  const int a = host_of(from), b = host_of(to);
  const Duration extra = machine(from).extra_delay + machine(to).extra_delay;
  if (a == b) return network_.local_latency + extra;
  Duration latency = network_.latency;
  if (!network_.links.empty())
    if (const LinkOverride* link = override_of(a, b); link && link->latency.count() >= 0)
      latency = link->latency;
  if (network_.jitter.count() > 0)
    latency += from_seconds(jitter_.exponential(1 / seconds(network_.jitter)));
  return latency + extra;
}

Stream& Cluster::stream(int from, int to, Channel channel) {
  // Both ends ask for the same one, once each. One of them may have streams to everybody.
  const auto& ends = machine(from).streams.size() < machine(to).streams.size()
                         ? machine(from).streams
                         : machine(to).streams;
  for (Stream* known : ends)
    if (known->from() == from && known->to() == to && known->channel() == channel) return *known;
  streams_.push_back(std::make_unique<Stream>(*this, from, to, channel));
  Stream* made = streams_.back().get();
  machine(from).streams.push_back(made);
  machine(to).streams.push_back(made);
  return *made;
}

std::string Cluster::trouble(int rank, int peer) const {
  if (restarted(rank)) return "which knows an earlier process of this rank";
  return cut(rank, peer) ? "" : machine(peer).trouble;
}

Time Cluster::last_sign(int rank, int peer, std::vector<int>& seen) const {
  if (cut(rank, peer) || std::find(seen.begin(), seen.end(), peer) != seen.end()) return {};
  seen.push_back(peer);
  return machine(peer).base->last_sign(seen);
}

void Cluster::announce(int rank, const std::string& why) {
  const Duration latency = hosts() > 1 ? network_.latency : network_.local_latency;
  engine_.schedule(engine_.now() + latency, [this, rank, why] {
    Machine& each = machine(rank);
    if (each.trouble.empty()) each.trouble = why;
    wake_peers_of(rank);
  });
}

void Cluster::wake_peers_of(int rank) {
  for (Stream* stream : machine(rank).streams) {
    const bool sends = stream->from() == rank;
    Signal& signal = sends ? stream->arrival() : stream->departure();
    if (!signal.awaited()) continue;
    signal.notify_all();
    engine_.wake(sends ? stream->to() : stream->from());
  }
}

}  // namespace skein::sim

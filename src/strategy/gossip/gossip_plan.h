// What is decided once for all workers of a gossip: options, graph and its constants.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/gossip_constants.h"
#include "graph/topology.h"
#include "strategy/gossip/averaging_clock.h"
#include "strategy/option_reader.h"

namespace skein {

struct GossipOptions {
  std::string topology = "ring";
  double rate = 1;  // averagings a worker takes part in, per gradient
  AveragingClock::Schedule schedule = AveragingClock::Schedule::poisson;
  std::int64_t max_lag = 2;       // averagings behind its rate before a worker waits
  double strength = 1;            // of what an averaging does to x̃
  bool average_momentum = false;  // of the optimizer

  // `momentum`: of acid.
  GossipOptions(OptionReader& reader, bool momentum);
};

struct GossipPlan {
  // Takes seconds for thousands of workers. ConfigError for a graph that is impossible.
  GossipPlan(const GossipOptions& options, bool momentum, int workers, std::uint64_t seed);

  GossipOptions options;
  Topology topology;
  GossipConstants constants;  // those in use: without momentum eta is 0

  // Whom `rank` averages with when `lost` (by rank) are gone: its living neighbours and, around
  // each cluster of lost ones beside it, the two next to it in the circle of those around the
  // cluster. So the living stay connected whoever is lost. Ascending.
  std::vector<int> neighbours_without(int rank, const std::vector<bool>& lost) const;

  // Whether all others can reach each other when `lost` are gone and nobody bridges them.
  bool connected_without(const std::vector<bool>& lost) const;
};

}  // namespace skein

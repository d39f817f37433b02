#include "strategy/gossip/gossip_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "skein/error.h"

namespace skein {
namespace {

GossipConstants constants_of(const Topology& topology, const GossipOptions& options,
                             bool momentum) {
  if (!momentum) return {};
  GossipConstants constants = gossip_constants(topology, options.rate);
  constants.alpha_tilde *= options.strength;
  return constants;
}

}  // namespace

GossipOptions::GossipOptions(OptionReader& reader, bool momentum) {
  using Schedule = AveragingClock::Schedule;
  topology =
      reader.text("topology", topology, "GRAPH|FILE", "who averages with whom, as --topology");
  rate = reader.number("rate", rate, 1e-3, 1e3, "averagings per gradient, as --rate");
  schedule = reader.choice<Schedule>("schedule",
                                     {{"poisson", Schedule::poisson}, {"fixed", Schedule::fixed}},
                                     "averagings at random times, or evenly spaced");
  max_lag = reader.whole("max_lag", max_lag, 1, 1 << 20,
                         "averagings that a worker may be behind its rate before it waits");
  if (momentum)
    strength =
        reader.number("strength", strength, 0, 100,
                      "what an averaging does to the second vector, in parts of the paper's");
  average_momentum = reader.choice<bool>("momentum", {{"local", false}, {"averaged", true}},
                                         "whether the optimizer's state is averaged as well");
}

GossipPlan::GossipPlan(const GossipOptions& chosen, bool momentum, int workers, std::uint64_t seed)
    : options(chosen),
      topology(Topology::parse(chosen.topology, workers, seed)),
      constants(constants_of(topology, chosen, momentum)) {}

namespace {

// The living around the cluster of lost ranks that `start` belongs to.
std::set<int> around(const Topology& topology, const std::vector<bool>& lost, int start) {
  std::set<int> cluster{start}, living;
  std::vector<int> next{start};
  while (!next.empty()) {
    const int rank = next.back();
    next.pop_back();
    for (const int neighbour : topology.neighbours(rank)) {
      if (!lost[static_cast<std::size_t>(neighbour)])
        living.insert(neighbour);
      else if (cluster.insert(neighbour).second)
        next.push_back(neighbour);
    }
  }
  return living;
}

}  // namespace

std::vector<int> GossipPlan::neighbours_without(int rank, const std::vector<bool>& lost) const {
  std::set<int> all;
  for (const int neighbour : topology.neighbours(rank)) {
    if (!lost[static_cast<std::size_t>(neighbour)]) {
      all.insert(neighbour);
      continue;
    }
    const std::set<int> circle = around(topology, lost, neighbour);
    const auto here = circle.find(rank);
    all.insert(here == circle.begin() ? *circle.rbegin() : *std::prev(here));
    all.insert(std::next(here) == circle.end() ? *circle.begin() : *std::next(here));
  }
  all.erase(rank);
  return {all.begin(), all.end()};
}

bool GossipPlan::connected_without(const std::vector<bool>& lost) const {
  std::vector<bool> seen = lost;
  const auto first = std::find(seen.begin(), seen.end(), false);
  if (first == seen.end()) return true;
  std::vector<int> reached{static_cast<int>(first - seen.begin())};
  *first = true;
  for (std::size_t next = 0; next < reached.size(); ++next)
    for (const int neighbour : topology.neighbours(reached[next])) {
      if (seen[static_cast<std::size_t>(neighbour)]) continue;
      seen[static_cast<std::size_t>(neighbour)] = true;
      reached.push_back(neighbour);
    }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

}  // namespace skein

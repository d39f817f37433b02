#include "strategy/gossip_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "skein/error.h"
#include "strategy/option_reader.h"

namespace skein {
namespace {

bool one_of_two(OptionReader& reader, const std::string& key, const std::string& usual,
                const std::string& other) {
  const std::string value = reader.text(key, usual);
  if (value != usual && value != other)
    throw ConfigError(
        fmt::format("strategy.{} = '{}': expected {} or {}", key, value, usual, other));
  return value == other;
}

GossipConstants constants_of(const Topology& topology, const GossipOptions& options,
                             bool momentum) {
  if (!momentum) return {};
  GossipConstants constants = gossip_constants(topology, options.rate);
  constants.alpha_tilde *= options.strength;
  return constants;
}

}  // namespace

GossipOptions::GossipOptions(const std::map<std::string, std::string>& options, bool momentum) {
  OptionReader reader(momentum ? "acid" : "gossip", options);
  topology = reader.text("topology", topology);
  rate = reader.number("rate", rate, 1e-3, 1e3);
  if (one_of_two(reader, "schedule", "poisson", "fixed"))
    schedule = AveragingClock::Schedule::fixed;
  max_lag = reader.whole("max_lag", max_lag, 1, 1 << 20);
  if (momentum) strength = reader.number("strength", strength, 0, 100);
  average_momentum = one_of_two(reader, "momentum", "local", "averaged");
  reader.finish();
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

// Random clusters with random faults: does every strategy keep its promises on all of them?
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "sim/objective.h"
#include "sim/scenario.h"
#include "sim/simulation.h"

namespace skein::sim {

// What one seed stands for: cluster size, network, computation, objective, strategy, faults.
struct Draw {
  Scenario scenario;
  bool quadratic = false;  // with values, else time only

  std::string describe() const;
};
Draw draw(std::uint64_t seed);

// Runs it and says which promise was broken, or nothing. The promises:
// - the run ends, and no later than faults and deadlines explain;
// - without faults, or with such as pass before patience ends, every worker completes, all make the
//   same steps (but for lasgd, where each makes as many as it can), and replicas end bit-equal;
// - else every worker completes or ends in an IoError that names a peer; and where only lost ones
//   are to blame, somebody names one of them;
// - the same seed gives the same hash.
// Those of one that survives losses:
// - the run ends, no later than faults and deadlines explain, and everyone that no fault took
//   completes;
// - without faults it ends within the budget and what workers do not know of each other yet;
// - replicas are equal in the end, unless a fault came between;
// - the same seed gives the same hash.
struct Verdict {
  std::string broken;  // empty: nothing
  Report report;
};
Verdict judge(const Draw& draw);

struct SwarmReport {
  std::uint64_t seeds = 0;
  std::uint64_t completed = 0, failed = 0;  // runs
  std::uint64_t hangs = 0;
  std::map<std::string, std::uint64_t> faults;  // by kind
  std::map<std::uint64_t, std::string> broken;  // by seed
  std::uint64_t events = 0;
  double wall_seconds = 0;
};

// All seeds from `first` to `last`. `tell` is called after each.
SwarmReport run_swarm(std::uint64_t first, std::uint64_t last,
                      const std::function<void(std::uint64_t seed)>& tell);

}  // namespace skein::sim

// The whole answer: which strategy suits a cluster, and what would change that.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "advise/candidate.h"
#include "advise/changes.h"
#include "advise/choice.h"
#include "sim/scenario.h"

namespace skein::advise {

struct Effort {
  int steps = 40;       // of each simulation, in global batches
  int again = 16;       // the same for changes and maps
  bool quick = false;   // no settings are searched
  bool changes = true;  // look for what would change the answer
  Rule rule = {};
};

// The most steps, of 40, 24, 16 and 8, with which a simulation stays below some millions of events,
// judged by one of a few steps. Counted in events, so that it is the same on every machine.
int affordable_steps(const sim::Scenario& cluster);

struct Advice {
  sim::Scenario cluster;
  std::vector<Candidate> candidates;  // the best of each strategy (search_all)
  std::vector<Candidate> tried;       // all whose settings were tried, in turn
  Choice choice;
  std::vector<Change> faster, slower;          // networks: in bytes per second of a host
  std::vector<Change> less_equal, more_equal;  // workers: fastest over slowest
  // What the simulations that look for changes choose on this very cluster; empty: nobody looked.
  // Where it is not what is recommended they would tell of another answer's changes, and there are
  // none above.
  std::string chosen_again;
  int simulations = 0;
  std::uint64_t events = 0;

  const Candidate& recommended() const { return candidates[choice.recommended]; }
  const Candidate& runner_up() const { return candidates[choice.runner_up]; }
  const Candidate& plain() const { return candidates[choice.plain]; }
};

// Is told what is simulated now.
using Tell = std::function<void(const std::string&)>;

// Deterministic from the scenario, whose strategy, objective and length do not count. ConfigError
// for a cluster of one worker, and where no strategy comes to its end.
Advice make_advice(const sim::Scenario& cluster, const Effort& effort, const Tell& tell);

// What the candidates' settings come to on a cluster that is somewhat different: with balance too
// where workers are unequal. For changes and maps; no settings are searched. Allreduce comes first;
// those that could not be chosen even if they used all that the workers can compute are left out.
std::vector<Candidate> try_again(const sim::Scenario& cluster,
                                 const std::vector<Candidate>& candidates, const Effort& effort);

// "lasgd", "dear, bf16": what changes are told of.
std::string answer_of(const Setup& setup);

// As far as changes are looked for, in bytes per second and as fastest over slowest.
inline constexpr double kSlowestNetwork = 1.25e6, kFastestNetwork = 12.5e9, kMostUnequal = 8;

}  // namespace skein::advise

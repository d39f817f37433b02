// Which settings a strategy is compared with: a small search, one setting after the other.
#pragma once

#include <string>
#include <vector>

#include "advise/predict.h"

namespace skein::advise {

// Values of one setting in the order of preference. A later one is taken where it makes the run
// faster by more than `margin`, a part of 1, than the best before it.
struct Axis {
  std::string key;  // of the strategy's settings, or "levels"
  std::vector<std::string> values;
  double margin = 0.02;
};

// What a cluster and a model leave to choose.
struct Space {
  int workers = 1;
  double model_bytes = 0;
  bool unequal = false;  // workers differ in speed, or their speeds change
  bool levels = false;   // several hosts have several workers

  static Space of(const sim::Scenario& cluster);
};

// The settings that are tried for a strategy; `quick`: none but those it is compared at.
std::vector<Axis> axes_of(const std::string& strategy, const Space& space, bool quick);

// Begins with the first value of each axis and changes one after the other.
Candidate search(const Setup& start, const std::vector<Axis>& axes, const Predict& predict);

// The best of every strategy, in the registry's order; of those whose messages can be rounded, a
// second one that sends bfloat16, with the settings of the first.
std::vector<Candidate> search_all(const Space& space, bool quick, const Predict& predict);

}  // namespace skein::advise

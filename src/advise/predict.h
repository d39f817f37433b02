// What a run would come to: one simulation, by the code of `skein simulate`.
#pragma once

#include <functional>

#include "advise/candidate.h"
#include "sim/scenario.h"

namespace skein::advise {

using Predict = std::function<Candidate(const Setup&)>;

// Simulates `steps` times the global batch of `cluster` (its strategy and its length do not count)
// with time only; four times as long for those who gossip, whose pace settles late. Deterministic.
// A run that fails, a message too slow for the deadline say, is a candidate with an error and no
// samples.
Candidate predict(const sim::Scenario& cluster, const Setup& setup, int steps);

// The same, with what was asked before remembered. `cluster` is copied.
Predict remembering_predictor(const sim::Scenario& cluster, int steps);

}  // namespace skein::advise

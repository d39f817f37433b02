// The objectives one by one, for make_objective() and for tests. Options have been checked.
#pragma once

#include <memory>
#include <vector>

#include "sim/objectives/objectives.h"

namespace skein::sim {

std::unique_ptr<Objective> make_consensus(const ObjectiveOptions& options);
std::unique_ptr<Objective> make_quadratic(const ObjectiveOptions& options);
std::unique_ptr<Objective> make_logistic(const ObjectiveOptions& options);

// The curvatures of the quadratic: geometric from 1 / condition to 1, both exact. A single one
// is 1.
std::vector<double> geometric_spectrum(int dimension, double condition);

}  // namespace skein::sim

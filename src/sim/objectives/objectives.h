// The objectives of the virtual cluster by name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "sim/objective.h"

namespace skein::sim {

// Options that the named objective does not have are ignored, but their values are checked.
struct ObjectiveOptions {
  std::string name;
  int workers = 1;
  std::uint64_t seed = 0;
  int dimension = 0;                // 0: the objective's own default
  double condition = 100;           // quadratic: largest over smallest curvature
  double noise = 0.1;               // quadratic: deviation of one sample's gradient, per element
  double skew = 0;                  // quadratic: deviation of the workers' own centres
  std::optional<double> dirichlet;  // logistic: label skew; none: workers share all samples
};

// "consensus": every worker starts from its own unit Gaussian vector of `dimension` (8) elements;
//   gradients and losses are zero, and there is nothing to evaluate.
// "quadratic": f(x) = ½ (x − c)ᵀ A (x − c) in `dimension` (64) elements, from 0 on all workers.
//   evaluate() gives f, whose minimum is 0; loss() the worker's own, around its own centre
//   and without the noise.
// "logistic": softmax regression with 10 classes and `dimension` (32, at most 4096) features, from
// 0
//   on all workers. Losses of samples include the L2 penalty; evaluate() gives cross-entropy
//   without it, and accuracy, on test samples.
// Throws ConfigError for another name or a value out of range.
std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options);

}  // namespace skein::sim

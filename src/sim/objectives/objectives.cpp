#include "sim/objectives/objectives.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/objectives/kinds.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

template <typename Value>
void require(bool allowed, const char* what, Value value, const char* expected) {
  if (!allowed) throw ConfigError(fmt::format("{} is {}: expected {}", what, value, expected));
}

void check(const ObjectiveOptions& options) {
  require(options.workers >= 1, "workers", options.workers, "at least 1");
  require(options.dimension >= 0 && options.dimension <= 1000000, "dimension", options.dimension,
          "1 to 1000000, or 0 for the objective's own");
  require(options.condition >= 1 && std::isfinite(options.condition), "condition",
          options.condition, "a number of at least 1");
  require(options.noise >= 0 && std::isfinite(options.noise), "noise", options.noise,
          "a number of at least 0");
  require(options.skew >= 0 && std::isfinite(options.skew), "skew", options.skew,
          "a number of at least 0");
  if (options.dirichlet) {
    require(*options.dirichlet > 0, "dirichlet", *options.dirichlet, "a number above 0");
  }
}

}  // namespace

std::unique_ptr<Objective> make_objective(const ObjectiveOptions& options) {
  check(options);
  if (options.name == "consensus") return make_consensus(options);
  if (options.name == "quadratic") return make_quadratic(options);
  if (options.name == "logistic") return make_logistic(options);
  throw ConfigError(
      fmt::format("objective is '{}': expected consensus, quadratic or logistic", options.name));
}

}  // namespace skein::sim

// What a serial reference of a strategy needs, and what is compared with it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/objectives/objectives.h"
#include "sim/scenarios.h"

namespace skein::sim {

// In the order of the ring: shard p is added up from rank p + 1 on.
inline std::vector<float> ring_sum(const std::vector<std::vector<float>>& parts) {
  const int size = static_cast<int>(parts.size());
  std::vector<float> sum(parts.front().size());
  for (int p = 0; p < size; ++p) {
    const Range range = shard(sum.size(), size, p);
    for (std::size_t i = range.offset; i < range.end(); ++i) {
      sum[i] = parts[static_cast<std::size_t>((p + 1) % size)][i];
      for (int k = 2; k <= size; ++k) sum[i] += parts[static_cast<std::size_t>((p + k) % size)][i];
    }
  }
  return sum;
}

// Keeps the mean of the models that was evaluated last.
class Kept final : public Objective {
 public:
  explicit Kept(std::unique_ptr<Objective> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<Replica> replica(int rank) override { return inner_->replica(rank); }
  std::optional<Quality> evaluate(Span parameters) override {
    last.assign(parameters.host().begin(), parameters.host().end());
    return inner_->evaluate(parameters);
  }
  std::vector<float> last;

 private:
  std::unique_ptr<Objective> inner_;
};

inline std::unique_ptr<Objective> quadratic(int workers, double noise = 0.1,
                                            double condition = 10) {
  return make_objective({.name = "quadratic",
                         .workers = workers,
                         .seed = 7,
                         .condition = condition,
                         .noise = noise,
                         .dirichlet = {}});
}

// Of the summed speed of all workers.
inline double utilisation(const Scenario& scenario, const Report& report) {
  const double all =
      static_cast<double>(scenario.batch * scenario.workers) / seconds(scenario.mean_gradient());
  return report.samples_per_second / all;
}

// Time in which a ring of four moves the model of one layer, as that many micro-batches of 30 ms.
inline Network network_for(double micro_batches) {
  if (micro_batches == 0) return free_network();
  return plain_network(2 * 3 * kLayerElements * 4 / 4 / (micro_batches * 30e-3), Duration(0));
}

}  // namespace skein::sim

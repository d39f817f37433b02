// Runs of gossip and acid on the virtual cluster.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/objectives/objectives.h"
#include "sim/scenarios.h"

namespace skein::sim {

inline constexpr Duration kGradient = std::chrono::milliseconds(100);

// Gradients of 100 ms on a fast network, for `gradients` of them.
inline Scenario gossip_scenario(const std::string& strategy, int workers, double gradients,
                                std::map<std::string, std::string> settings = {}) {
  using namespace std::chrono_literals;
  Scenario scenario =
      hand_scenario(workers, parse_network("10gbe"), hand_profile(1, 40ms, 60ms), 1);
  scenario.samples = 0;
  scenario.time = from_seconds(seconds(kGradient) * gradients);
  scenario.strategy = strategy;
  scenario.strategy_settings = std::move(settings);
  return scenario;
}

// Averaging alone, from unit Gaussian vectors of 8 elements.
inline Report run_consensus(Scenario scenario, std::uint64_t seed) {
  scenario.seed = seed;
  const auto objective = make_objective(
      {.name = "consensus", .workers = scenario.workers, .seed = seed, .dirichlet = {}});
  return simulate(scenario, objective.get());
}

// Of the last observation up to that many gradients.
inline double consensus_at(const Report& report, double gradients) {
  double value = 0;
  for (const Observation& seen : report.observations)
    if (seconds(seen.time) <= seconds(kGradient) * (gradients + 1e-6)) value = seen.consensus;
  return value;
}

// Averagings that workers took part in, per gradient, over all of them.
inline double averagings_per_gradient(const Report& report) {
  double averagings = 0, gradients = 0;
  for (const WorkerReport& each : report.workers) {
    averagings +=
        each.strategy["initiated"].get<double>() + each.strategy["accepted"].get<double>();
    gradients += static_cast<double>(each.figures.micro_batches);
  }
  return averagings / gradients;
}

// Every worker starts from a model of its own and has a constant gradient of its own.
class Drift final : public Objective {
 public:
  explicit Drift(std::size_t elements) : elements_(elements) {}

  std::unique_ptr<Replica> replica(int rank) override;
  std::optional<Quality> evaluate(Span parameters) override {
    mean.assign(parameters.host().begin(), parameters.host().end());
    if (look) look();
    return Quality{};
  }

  static float start_of(int rank) { return static_cast<float>(rank % 7) - 3; }
  static float gradient_of(int rank) { return 1 + static_cast<float>(rank % 5); }

  struct Seen {
    Arena* arena;
    std::int64_t gradients = 0;  // that were computed
  };
  std::vector<float> mean;      // of all models, when last observed
  std::map<int, Seen> workers;  // while the simulation lives
  std::function<void()> look;   // at each observation

 private:
  std::size_t elements_;
};

class DriftReplica final : public Replica {
 public:
  DriftReplica(Drift& drift, int rank, std::size_t elements)
      : drift_(drift), rank_(rank), arena_({{"x", elements}}, allocate_on_heap) {
    for (float& x : arena_.parameters().host()) x = Drift::start_of(rank);
    drift_.workers[rank] = {&arena_};
  }
  Arena& arena() override { return arena_; }
  void gradient(std::int64_t) override {
    for (float& g : arena_.gradients().host()) g += Drift::gradient_of(rank_);
    ++drift_.workers[rank_].gradients;
  }
  double loss() const override { return 0; }

 private:
  Drift& drift_;
  int rank_;
  Arena arena_;
};

inline std::unique_ptr<Replica> Drift::replica(int rank) {
  return std::make_unique<DriftReplica>(*this, rank, elements_);
}

}  // namespace skein::sim

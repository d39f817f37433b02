// Runs a scenario from beginning to end.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/trace.h"
#include "sim/objective.h"
#include "sim/scenario.h"
#include "sim/virtual_worker.h"

namespace skein::sim {

// The models of all workers, seen from outside at one moment.
struct Observation {
  Duration time{};
  std::int64_t samples = 0;
  double consensus = 0;            // mean squared distance of the models from their mean
  std::optional<Quality> quality;  // of the mean
};

struct WorkerReport {
  Outcome outcome;
  WorkerFigures figures;
  std::uint64_t bytes_sent = 0;
  nlohmann::json strategy;  // its strategy's own figures
  bool taken = false;       // a fault ended its process, though it may have been started anew
};

struct Report {
  std::vector<WorkerReport> workers;
  std::vector<Observation> observations;  // empty where models have no values
  std::optional<Duration> target;         // when the target was reached
  Duration time{};                        // virtual, at the end
  std::int64_t parameters = 0;            // of a model
  std::int64_t samples = 0;
  double samples_per_second = 0;
  std::uint64_t events = 0, hash = 0;
  double wall_seconds = 0;
  std::int64_t device_memory = 0;  // bytes, at the end (Objective::device_memory)
  std::string summary;             // of rank 0's strategy, for people
  // Somebody waited with nothing left that could happen, or things happened without end: a bug.
  bool hung = false;
  int first_failed = -1;  // rank, or -1

  // Whom others waited for in vain: taken by a fault, or never heard of again.
  std::set<int> lost() const;

  bool completed() const { return first_failed < 0 && !hung; }
};

// `objective` may be null: then only time is simulated, with the profile's tensors and no values.
// `trace_of(rank)` gives each worker's trace; they outlive the run. Deterministic: depends on the
// arguments alone, but for wall_seconds. Throws ConfigError for settings that do not fit.
// `tell` is called after steps of rank 0.
struct Moment {
  Duration time{};
  std::int64_t samples = 0;
  std::uint64_t events = 0;
};
Report simulate(const Scenario& scenario, Objective* objective,
                const std::function<Trace&(int rank)>& trace_of,
                const std::function<void(const Moment&)>& tell);
Report simulate(const Scenario& scenario, Objective* objective);

}  // namespace skein::sim

// What a run has measured, of all workers together.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "skein/totals.h"
#include "skein/world.h"
#include "train/evaluation.h"
#include "train/options.h"

namespace skein {

// One worker's own measurements.
struct RunFigures {
  std::int64_t samples = 0;        // this worker's
  std::int64_t micro_batches = 0;  // this worker's
  std::int64_t iterations = 0;
  Duration busy{};      // computing: forward, backward, update
  Totals totals;        // of the run; waiting of steps alone, not of the end
  Duration training{};  // first step to last, evaluations and checkpoints excluded
  Duration startup{}, evaluation{}, checkpointing{}, flush{};
  std::vector<double> iteration_ms;
  std::string device = "cpu";            // where it computed
  std::int64_t device_memory_bytes = 0;  // taken of that device at the end, by whomever
  bool channels_last = false;
  double target_seconds = -1;  // training time when the target accuracy was first reached
};

// Collects everybody's figures; the same on every worker. All workers call it.
// `strategy`: what this worker's strategy says of itself. Without evaluation nobody knows how good
// the model is.
nlohmann::json summarise(World& world, const TrainOptions& options, const RunFigures& figures,
                         const nlohmann::json& strategy, const std::optional<Quality>& evaluation,
                         std::int64_t total_samples);

// What the worker that leads makes of it: the few lines that a person reads at the end, the
// strategy's own after them, and the files that the job asks for.
struct ReportFacts {
  std::string run_id;
  std::string strategy_summary;
  int reordered = 0;
};
void publish(const TrainOptions& options, const nlohmann::json& summary, const ReportFacts& facts);

}  // namespace skein

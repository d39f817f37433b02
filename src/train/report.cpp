#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/field_names.h"
#include "core/statistics.h"
#include "core/units.h"
#include "observe/json_text.h"

namespace skein {
namespace {

using Json = nlohmann::json;

// What the report says of this worker.
Json own_row(const TrainOptions& options, const RunFigures& figures, const Json& strategy,
             double training) {
  const double steps = static_cast<double>(std::max<std::int64_t>(1, figures.iterations));
  const Duration exposed = figures.totals.waiting;
  Json row{{field::kSamples, figures.samples},
           {field::kMicroBatches, figures.micro_batches},
           {field::kBusyFraction, seconds(figures.busy) / training},
           {field::kWaitingFraction, seconds(exposed) / training},
           {field::kExposedCommMs, milliseconds(exposed) / steps},
           {field::kBytesSent, static_cast<std::int64_t>(figures.totals.bytes_sent)},
           {field::kDevice, figures.device},
           {field::kPrecision, options.precision}};
  if (figures.device_memory_bytes > 0) row[field::kDeviceMemoryBytes] = figures.device_memory_bytes;
  if (!strategy.empty()) row[field::kFigures] = strategy;
  return row;
}

// The few lines that a person reads at the end.
std::string summary_text(const Json& summary) {
  const std::string quality = summary[field::kAccuracy].is_null()
                                  ? "not evaluated: the run was stopped before its end"
                                  : fmt::format("test accuracy {:.2f} %, loss {:.4f}",
                                                100 * summary[field::kAccuracy].get<double>(),
                                                summary[field::kLoss].get<double>());
  std::string samples = fmt::format("{} samples", summary[field::kSamples].get<std::int64_t>());
  if (summary.contains(field::kResumedSamples))
    samples += fmt::format(", {} of them since it was resumed,",
                           summary[field::kResumedSamples].get<std::int64_t>());
  std::string text = fmt::format(
      "{} on {} worker{}: {} in {:.1f} s, {:.0f} samples/s\n"
      "{}\n"
      "iteration {:.1f} ms (p95 {:.1f} ms), {:.2f} ms of it waiting for communication; {} sent",
      summary[field::kStrategy].get<std::string>(), summary[field::kWorkers].get<int>(),
      summary[field::kWorkers] == 1 ? "" : "s", samples, summary[field::kSeconds].get<double>(),
      summary[field::kSamplesPerSecond].get<double>(), quality,
      summary[field::kIterationMs]["p50"].get<double>(),
      summary[field::kIterationMs]["p95"].get<double>(),
      summary[field::kExposedCommMs].get<double>(),
      print_bytes(summary[field::kBytesSent].get<double>()));
  if (summary.contains(field::kDeviceMemoryBytes))
    text += fmt::format("; {} of a GPU's memory in use",
                        print_bytes(summary[field::kDeviceMemoryBytes].get<double>()));
  if (summary.contains(field::kSecondsToTarget))
    text += summary[field::kSecondsToTarget].is_null()
                ? fmt::format("\naccuracy {} was not reached",
                              summary[field::kTargetAccuracy].get<double>())
                : fmt::format("\naccuracy {} reached after {:.1f} s of training",
                              summary[field::kTargetAccuracy].get<double>(),
                              summary[field::kSecondsToTarget].get<double>());
  return text;
}

}  // namespace

Json summarise(World& world, const TrainOptions& options, const RunFigures& figures,
               const Json& strategy, const std::optional<Quality>& evaluation,
               std::int64_t total_samples) {
  const double training = std::max(1e-9, seconds(figures.training));
  const double longest = world.max({training}).front();
  Json workers = Json::array();
  std::int64_t samples = 0, bytes = 0, memory = 0;
  double exposed = 0, present = 0;
  for (const std::string& text :
       world.gather_text(text_of(own_row(options, figures, strategy, training)))) {
    Json row = text.empty() ? Json{{field::kLost, true}} : Json::parse(text);
    row[field::kRank] = workers.size();
    if (!text.empty()) {
      samples += row[field::kSamples].get<std::int64_t>();
      bytes += row[field::kBytesSent].get<std::int64_t>();
      memory = std::max(memory, row.value(field::kDeviceMemoryBytes, std::int64_t{0}));
      exposed += row[field::kExposedCommMs].get<double>();
      ++present;
    }
    workers.push_back(std::move(row));
  }
  Json json{{field::kStrategy, options.strategy},
            {field::kWorkers, world.size()},
            {field::kFabric, world.fabric()},
            {field::kModel, options.model},
            {field::kData, options.data},
            {field::kDevice, figures.device.substr(0, figures.device.find(':'))},
            {field::kPrecision, options.precision},
            {field::kParameters, figures.totals.parameters},
            {field::kSamples, total_samples},
            {field::kSeconds, longest},
            {field::kSamplesPerSecond, static_cast<double>(samples) / longest},
            {field::kIterations, figures.iterations},
            {field::kIterationMs,
             {{"p50", quantile(figures.iteration_ms, 0.5)},
              {"p95", quantile(figures.iteration_ms, 0.95)}}},
            {field::kLoss, evaluation ? Json(evaluation->loss) : Json()},
            {field::kAccuracy, evaluation ? Json(evaluation->accuracy) : Json()},
            {field::kBytesSent, bytes},
            {field::kExposedCommMs, exposed / present},
            {field::kStartupSeconds, seconds(figures.startup)},
            {field::kEvaluationSeconds, seconds(figures.evaluation)},
            {field::kCheckpointSeconds, seconds(figures.checkpointing)},
            {field::kFlushSeconds, seconds(figures.flush)},
            {field::kFigures, strategy},
            {field::kPerWorker, workers}};
  if (memory > 0) {
    json[field::kDeviceMemoryBytes] = memory;
    json[field::kChannelsLast] = figures.channels_last;
  }
  if (!options.resume.empty()) json[field::kResumedSamples] = samples;
  if (options.target_accuracy > 0) {
    json[field::kTargetAccuracy] = options.target_accuracy;
    json[field::kSecondsToTarget] =
        figures.target_seconds >= 0 ? Json(figures.target_seconds) : Json();
  }
  return json;
}

void publish(const TrainOptions& options, const Json& summary, const ReportFacts& facts) {
  fmt::print("{}\n", summary_text(summary));
  if (!facts.strategy_summary.empty()) fmt::print("{}\n", facts.strategy_summary);
  std::fflush(stdout);
  if (!options.folder().empty())
    write_whole(options.folder() + "/summary.json", summary.dump(2) + "\n");
  if (options.json.empty()) return;
  Json json = summary;
  json["command"] = options.command;
  json[field::kRunId] = facts.run_id;
  json["restarts"] = Json::parse(options.restarts_json);
  json["version"] = options.version;
  json["seed"] = options.seed;
  json[field::kConfig] = Json::parse(options.config_json);
  json[field::kFigures]["reordered"] = facts.reordered;
  write_whole(options.json, json.dump(2) + "\n");
}

}  // namespace skein

#include "train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/statistics.h"
#include "core/units.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

using Json = nlohmann::json;

}  // namespace

Json summarise(World& world, const TrainOptions& options, const RunFigures& figures,
               const Json& strategy, const std::optional<Evaluation>& evaluation,
               std::int64_t total_samples, std::int64_t parameters) {
  const double steps = static_cast<double>(std::max<std::int64_t>(1, figures.iterations));
  const double training = std::max(1e-9, seconds(figures.training));
  const auto rows = world.gather(
      {static_cast<double>(figures.samples), static_cast<double>(figures.micro_batches),
       seconds(figures.busy) / training, milliseconds(figures.exposed) / steps,
       static_cast<double>(figures.bytes_sent), training,
       static_cast<double>(figures.device_memory_bytes), seconds(figures.exposed) / training});
  const auto strategies = world.impl().gather_text(strategy.dump());
  const auto devices = world.impl().gather_text(figures.device);
  Json workers = Json::array();
  double samples = 0, exposed = 0, bytes = 0, longest = 0, present = 0, memory = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (!world.impl().present()[r]) {
      workers.push_back({{"rank", r}, {"lost", true}});
      continue;
    }
    const auto& row = rows[r];
    workers.push_back({{"rank", r},
                       {"samples", static_cast<std::int64_t>(row[0])},
                       {"micro_batches", static_cast<std::int64_t>(row[1])},
                       {"busy_fraction", row[2]},
                       {"waiting_fraction", row[7]},
                       {"exposed_comm_ms", row[3]},
                       {"bytes_sent", static_cast<std::int64_t>(row[4])},
                       {"device", devices[r]},
                       {"precision", options.precision}});
    if (row[6] > 0) workers.back()["device_memory_bytes"] = static_cast<std::int64_t>(row[6]);
    memory = std::max(memory, row[6]);
    if (Json own = Json::parse(strategies[r]); !own.empty()) workers.back()["figures"] = own;
    samples += row[0];
    exposed += row[3];
    ++present;
    bytes += row[4];
    longest = std::max(longest, row[5]);
  }
  Json json{{"strategy", options.strategy},
            {"workers", world.size()},
            {"fabric", world.fabric()},
            {"model", options.model},
            {"data", options.data},
            {"device", figures.device.substr(0, figures.device.find(':'))},
            {"precision", options.precision},
            {"parameters", parameters},
            {"samples", total_samples},
            {"seconds", longest},
            {"samples_per_second", samples / longest},
            {"iterations", figures.iterations},
            {"iteration_ms",
             {{"p50", quantile(figures.iteration_ms, 0.5)},
              {"p95", quantile(figures.iteration_ms, 0.95)}}},
            {"loss", evaluation ? Json(evaluation->loss) : Json()},
            {"accuracy", evaluation ? Json(evaluation->accuracy) : Json()},
            {"bytes_sent", static_cast<std::int64_t>(bytes)},
            {"exposed_comm_ms", exposed / present},
            {"startup_seconds", seconds(figures.startup)},
            {"evaluation_seconds", seconds(figures.evaluation)},
            {"checkpoint_seconds", seconds(figures.checkpointing)},
            {"flush_seconds", seconds(figures.flush)},
            {"figures", strategy},
            {"per_worker", workers}};
  if (memory > 0) {
    json["device_memory_bytes"] = static_cast<std::int64_t>(memory);
    json["channels_last"] = figures.channels_last;
  }
  if (!options.resume.empty()) json["resumed_samples"] = static_cast<std::int64_t>(samples);
  if (options.target_accuracy > 0) {
    json["target_accuracy"] = options.target_accuracy;
    json["seconds_to_target"] = figures.target_seconds >= 0 ? Json(figures.target_seconds) : Json();
  }
  return json;
}

std::string summary_text(const Json& summary) {
  const std::string quality =
      summary["accuracy"].is_null()
          ? "not evaluated: the run was stopped before its end"
          : fmt::format("test accuracy {:.2f} %, loss {:.4f}",
                        100 * summary["accuracy"].get<double>(), summary["loss"].get<double>());
  std::string samples = fmt::format("{} samples", summary["samples"].get<std::int64_t>());
  if (summary.contains("resumed_samples"))
    samples += fmt::format(", {} of them since it was resumed,",
                           summary["resumed_samples"].get<std::int64_t>());
  std::string text = fmt::format(
      "{} on {} worker{}: {} in {:.1f} s, {:.0f} samples/s\n"
      "{}\n"
      "iteration {:.1f} ms (p95 {:.1f} ms), {:.2f} ms of it waiting for communication; {} sent",
      summary["strategy"].get<std::string>(), summary["workers"].get<int>(),
      summary["workers"] == 1 ? "" : "s", samples, summary["seconds"].get<double>(),
      summary["samples_per_second"].get<double>(), quality,
      summary["iteration_ms"]["p50"].get<double>(), summary["iteration_ms"]["p95"].get<double>(),
      summary["exposed_comm_ms"].get<double>(), print_bytes(summary["bytes_sent"].get<double>()));
  if (summary.contains("device_memory_bytes"))
    text += fmt::format("; {} of a GPU's memory in use",
                        print_bytes(summary["device_memory_bytes"].get<double>()));
  if (summary.contains("seconds_to_target"))
    text +=
        summary["seconds_to_target"].is_null()
            ? fmt::format("\naccuracy {} was not reached", summary["target_accuracy"].get<double>())
            : fmt::format("\naccuracy {} reached after {:.1f} s of training",
                          summary["target_accuracy"].get<double>(),
                          summary["seconds_to_target"].get<double>());
  return text;
}

}  // namespace skein

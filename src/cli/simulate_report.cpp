#include "cli/simulate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/field_names.h"
#include "core/statistics.h"
#include "core/units.h"

namespace skein {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostRows = 16;

const char* outcome_name(sim::Outcome::Kind kind) {
  switch (kind) {
    case sim::Outcome::Kind::completed:
      return "completed";
    case sim::Outcome::Kind::failed:
      return "failed";
    case sim::Outcome::Kind::crashed:
      return "crashed";
    case sim::Outcome::Kind::running:
      break;
  }
  return "running";
}

// From its first step to its last, or to the end for one that was cut off.
Duration active_time(const sim::WorkerFigures& figures) {
  return figures.last_step > figures.first_step ? figures.last_step - figures.first_step
                                                : Duration(0);
}

double busy_fraction(const sim::WorkerFigures& figures) {
  const double all = seconds(active_time(figures));
  return all > 0 ? std::min(1.0, seconds(figures.busy) / all) : 0;
}

double waiting_fraction(const sim::WorkerFigures& figures) {
  const double all = seconds(active_time(figures));
  return all > 0 ? std::min(1.0, seconds(figures.exposed) / all) : 0;
}

double exposed_ms(const sim::WorkerFigures& figures) {
  return milliseconds(figures.exposed) /
         static_cast<double>(std::max<std::int64_t>(1, figures.steps));
}

Json worker_rows(const sim::Report& report) {
  Json rows = Json::array();
  for (std::size_t rank = 0; rank < report.workers.size(); ++rank) {
    const sim::WorkerReport& each = report.workers[rank];
    Json row{{"rank", rank},
             {"samples", each.figures.samples},
             {field::kMicroBatches, each.figures.micro_batches},
             {field::kBusyFraction, busy_fraction(each.figures)},
             {field::kWaitingFraction, waiting_fraction(each.figures)},
             {field::kExposedCommMs, exposed_ms(each.figures)},
             {field::kBytesSent, each.bytes_sent},
             {"outcome", outcome_name(each.outcome.kind)}};
    if (!each.strategy.empty()) row["figures"] = each.strategy;
    if (!each.outcome.error.empty()) {
      row["error"] = each.outcome.error;
      row["ended_seconds"] = seconds(each.outcome.at - Time());
      if (each.outcome.peer >= 0) row["peer"] = each.outcome.peer;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Over all workers, who may each differ from it by chance.
void add_averagings(Json& json, const sim::Report& report) {
  double averagings = 0, gradients = 0;
  for (const sim::WorkerReport& each : report.workers) {
    if (!each.strategy.contains("initiated")) return;
    averagings +=
        each.strategy["initiated"].get<double>() + each.strategy["accepted"].get<double>();
    gradients += static_cast<double>(each.figures.micro_batches);
  }
  json["averagings_per_gradient"] = averagings / std::max(1.0, gradients);
}

void add_observations(Json& json, const SimulateOptionReader::Request& request,
                      const sim::Report& report) {
  if (report.observations.empty()) return;
  const double unit = seconds(request.scenario.mean_gradient());
  Json consensus = Json::array(), curve = Json::array();
  for (const sim::Observation& seen : report.observations) {
    consensus.push_back({{"time", seconds(seen.time) / unit},
                         {"seconds", seconds(seen.time)},
                         {"value", seen.consensus}});
    if (!seen.quality) continue;
    Json point{{"seconds", seconds(seen.time)},
               {"samples", seen.samples},
               {field::kLoss, seen.quality->loss}};
    if (seen.quality->accuracy) point[field::kAccuracy] = *seen.quality->accuracy;
    curve.push_back(std::move(point));
  }
  json["consensus"] = std::move(consensus);
  if (curve.empty()) return;
  json[field::kLoss] = curve.back()[field::kLoss];
  if (curve.back().contains(field::kAccuracy))
    json[field::kAccuracy] = curve.back()[field::kAccuracy];
  json["curve"] = std::move(curve);
  const auto& scenario = request.scenario;
  if (scenario.target_loss > 0 || scenario.target_accuracy > 0)
    json[field::kSecondsToTarget] = report.target ? Json(seconds(*report.target)) : Json();
}

std::string device_name(sim::Objective* objective) {
  Queue* const queue = objective ? objective->queue() : nullptr;
  return queue ? fmt::format("cuda:{}", queue->device().index) : "cpu";
}

std::string device_text(const Json& figures) {
  if (!figures.contains(field::kDeviceMemoryBytes)) return "";
  return fmt::format("\n{}: {:.0f} samples per real second, {} of its memory in use",
                     figures["device"].get<std::string>(),
                     figures["samples_per_wall_second"].get<double>(),
                     print_bytes(figures[field::kDeviceMemoryBytes].get<double>()));
}

std::string plural(std::int64_t count, const char* word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string worker_table(const Json& rows) {
  std::string text = fmt::format("{:>6}{:>12}{:>8}{:>14}{:>12}  {}", "rank", "samples", "busy",
                                 "exposed ms", "sent", "");
  for (const Json& row : rows) {
    text += fmt::format("\n{:>6}{:>12}{:>6.1f} %{:>14.2f}{:>12}", row["rank"].get<int>(),
                        row["samples"].get<std::int64_t>(),
                        100 * row[field::kBusyFraction].get<double>(),
                        row[field::kExposedCommMs].get<double>(),
                        print_bytes(row[field::kBytesSent].get<double>()));
    if (row["outcome"] == "failed" || row["outcome"] == "crashed")
      text += "  " + row["outcome"].get<std::string>();
  }
  return text;
}

std::string busy_range(const Json& rows) {
  std::vector<double> busy;
  for (const Json& row : rows) busy.push_back(100 * row[field::kBusyFraction].get<double>());
  return fmt::format("workers busy {:.1f} % to {:.1f} % of the time, median {:.1f} %",
                     quantile(busy, 0), quantile(busy, 1), quantile(busy, 0.5));
}

std::string model_text(const Json& figures) {
  std::string text;
  if (figures.contains(field::kLoss)) {
    text += fmt::format("\nloss {:.6g}", figures[field::kLoss].get<double>());
    if (figures.contains(field::kAccuracy))
      text += fmt::format(", accuracy {:.2f} %", 100 * figures[field::kAccuracy].get<double>());
  }
  if (figures.contains("consensus")) {
    const Json& last = figures["consensus"].back();
    text += fmt::format("\nconsensus distance {:.4g} at {:.4g} gradients",
                        last["value"].get<double>(), last["time"].get<double>());
  }
  if (figures.contains(field::kSecondsToTarget))
    text += figures[field::kSecondsToTarget].is_null()
                ? std::string("\nthe target was not reached")
                : fmt::format("\ntarget reached after {:.4g} virtual s",
                              figures[field::kSecondsToTarget].get<double>());
  return text;
}

std::string failure_text(const Json& figures) {
  std::string text;
  if (figures["hung"] == true)
    text += "\nHUNG: workers wait, and nothing is left that could happen";
  if (!figures["first_failure"].is_null()) {
    const Json& first = figures["first_failure"];
    text += fmt::format("\nFAILED at {:.3f} virtual s: rank {}: {}", first["seconds"].get<double>(),
                        first["rank"].get<int>(), first["error"].get<std::string>());
    const auto lost = figures["lost_workers"].get<std::vector<int>>();
    if (!lost.empty()) text += fmt::format("\nlost: rank {}", fmt::join(lost, ", "));
  }
  return text;
}

}  // namespace

Json figures_of(const SimulateOptionReader::Request& request, const sim::Report& report) {
  const sim::Scenario& scenario = request.scenario;
  std::vector<double> iterations;
  for (const Duration time : report.workers.front().figures.iterations)
    iterations.push_back(milliseconds(time));
  double exposed = 0, bytes = 0, active = 0;
  for (const sim::WorkerReport& each : report.workers) {
    exposed += exposed_ms(each.figures) / static_cast<double>(report.workers.size());
    bytes += static_cast<double>(each.bytes_sent);
    active = std::max(active, seconds(active_time(each.figures)));
  }
  const double summed_speed =
      static_cast<double>(scenario.batch * scenario.workers) / seconds(scenario.mean_gradient());
  Json json{{"strategy", scenario.strategy},
            {"workers", scenario.workers},
            {"gpus_per_host", scenario.network.workers_per_host},
            {"network", scenario.network.name},
            {"objective", request.objective_name},
            {"profile", scenario.profile.name},
            {"parameters", report.parameters},
            {"batch", scenario.batch},
            {"samples", report.samples},
            {"seconds", active},
            {field::kSamplesPerSecond, report.samples_per_second},
            {"utilisation", report.samples_per_second / summed_speed},
            {field::kIterations, report.workers.front().figures.steps},
            {field::kIterationMs,
             {{"p50", quantile(iterations, 0.5)}, {"p95", quantile(iterations, 0.95)}}},
            {field::kExposedCommMs, exposed},
            {field::kBytesSent, static_cast<std::int64_t>(bytes)},
            {"events", report.events},
            {"events_per_second",
             static_cast<double>(report.events) / std::max(1e-9, report.wall_seconds)},
            {"wall_seconds", report.wall_seconds},
            {"samples_per_wall_second",
             static_cast<double>(report.samples) / std::max(1e-9, report.wall_seconds)},
            {"device", device_name(request.objective.get())},
            {"trace_hash", fmt::format("{:016x}", report.hash)},
            {"completed", report.completed()},
            {"hung", report.hung},
            {"lost_workers", report.lost()},
            {"first_failure", nullptr},
            {"figures", report.workers.front().strategy},
            {"summary", report.summary},
            {field::kPerWorker, worker_rows(report)}};
  if (report.device_memory > 0) json[field::kDeviceMemoryBytes] = report.device_memory;
  Json faults = Json::array();
  for (const sim::Fault& fault : scenario.faults) faults.push_back(sim::describe(fault));
  json["faults"] = std::move(faults);
  if (report.first_failed >= 0) {
    const sim::Outcome& outcome =
        report.workers[static_cast<std::size_t>(report.first_failed)].outcome;
    json["first_failure"] = {{"rank", report.first_failed},
                             {"seconds", seconds(outcome.at - Time())},
                             {"peer", outcome.peer},
                             {"error", outcome.error}};
  }
  add_averagings(json, report);
  add_observations(json, request, report);
  return json;
}

std::string simulation_text(const Json& figures) {
  const int workers = figures["workers"].get<int>(), per_host = figures["gpus_per_host"].get<int>();
  std::string text = fmt::format(
      "{} on {}{}, {}; {} ({} parameters), batch {}\n"
      "iteration {:.2f} ms (p95 {:.2f} ms), {:.2f} ms of it waiting for communication\n"
      "{:.0f} samples/s, {:.1f} % of what the workers could compute; {} in {:.3f} virtual s, {} "
      "sent",
      figures["strategy"].get<std::string>(), plural(workers, "virtual worker"),
      per_host > 1 ? fmt::format(", {} per host", per_host) : "",
      figures["network"].get<std::string>(), figures["profile"].get<std::string>(),
      print_count(figures["parameters"].get<double>()), figures["batch"].get<std::int64_t>(),
      figures[field::kIterationMs]["p50"].get<double>(),
      figures[field::kIterationMs]["p95"].get<double>(),
      figures[field::kExposedCommMs].get<double>(), figures[field::kSamplesPerSecond].get<double>(),
      100 * figures["utilisation"].get<double>(),
      plural(figures[field::kIterations].get<std::int64_t>(), "iteration"),
      figures["seconds"].get<double>(), print_bytes(figures[field::kBytesSent].get<double>()));
  text += model_text(figures);
  const Json& rows = figures[field::kPerWorker];
  text += "\n" + (rows.size() <= kMostRows ? worker_table(rows) : busy_range(rows));
  if (!figures["summary"].get<std::string>().empty())
    text += "\n" + figures["summary"].get<std::string>();
  if (figures.contains("averagings_per_gradient"))
    text += fmt::format("\n{:.2f} averagings per gradient over all workers",
                        figures["averagings_per_gradient"].get<double>());
  text += device_text(figures) + failure_text(figures);
  return text + fmt::format("\n{} events in {:.2f} s, {:.1f} M/s; trace hash {}",
                            print_count(figures["events"].get<double>()),
                            figures["wall_seconds"].get<double>(),
                            figures["events_per_second"].get<double>() / 1e6,
                            figures["trace_hash"].get<std::string>());
}

std::string sweep_text(const std::vector<SweepPoint>& points) {
  const auto has = [&](const char* key) {
    return std::any_of(points.begin(), points.end(),
                       [&](const SweepPoint& point) { return point.figures.contains(key); });
  };
  const bool loss = has(field::kLoss), consensus = has("consensus"),
             target = has(field::kSecondsToTarget);
  std::vector<std::size_t> widths;
  for (std::size_t key = 0; key < points.front().settings.size(); ++key) {
    std::size_t width = points.front().settings[key].first.size();
    for (const SweepPoint& point : points)
      width = std::max(width, point.settings[key].second.size());
    widths.push_back(width + 2);
  }
  std::string text;
  for (std::size_t key = 0; key < widths.size(); ++key)
    text += fmt::format("{:<{}}", points.front().settings[key].first, widths[key]);
  text += fmt::format("{:>14}{:>12}{:>12}{:>8}{:>11}", "iteration ms", "exposed ms", "samples/s",
                      "busy", "sent");
  if (loss) text += fmt::format("{:>12}", "loss");
  if (consensus) text += fmt::format("{:>12}", "consensus");
  if (target) text += fmt::format("{:>12}", "target s");
  for (const SweepPoint& point : points) {
    const Json& f = point.figures;
    text += "\n";
    for (std::size_t key = 0; key < widths.size(); ++key)
      text += fmt::format("{:<{}}", point.settings[key].second, widths[key]);
    text += fmt::format(
        "{:>14.2f}{:>12.2f}{:>12.0f}{:>6.1f} %{:>11}", f[field::kIterationMs]["p50"].get<double>(),
        f[field::kExposedCommMs].get<double>(), f[field::kSamplesPerSecond].get<double>(),
        100 * f["utilisation"].get<double>(), print_bytes(f[field::kBytesSent].get<double>()));
    if (loss) text += fmt::format("{:>12.5g}", f.value(field::kLoss, 0.0));
    if (consensus) text += fmt::format("{:>12.4g}", f["consensus"].back()["value"].get<double>());
    if (target)
      text += f[field::kSecondsToTarget].is_null()
                  ? fmt::format("{:>12}", "-")
                  : fmt::format("{:>12.4g}", f[field::kSecondsToTarget].get<double>());
    if (f["completed"] == false) text += "  failed";
  }
  return text;
}

Json figures_of(const sim::SwarmReport& swarm) {
  Json broken = Json::object();
  for (const auto& [seed, what] : swarm.broken) broken[std::to_string(seed)] = what;
  return {{"seeds", swarm.seeds},   {"completed", swarm.completed},
          {"failed", swarm.failed}, {"hangs", swarm.hangs},
          {"faults", swarm.faults}, {"broken", broken},
          {"events", swarm.events}, {"wall_seconds", swarm.wall_seconds}};
}

std::string swarm_text(const sim::SwarmReport& swarm) {
  std::uint64_t faults = 0;
  std::vector<std::string> kinds;
  for (const auto& [kind, count] : swarm.faults) {
    faults += count;
    kinds.push_back(fmt::format("{} {}", count, kind));
  }
  std::string text = fmt::format(
      "{} seeds, {} faults{}: {} runs completed, {} ended in an error that names the peer, {} "
      "hung, "
      "{} broke a promise; {} events in {:.1f} s",
      swarm.seeds, faults, kinds.empty() ? "" : fmt::format(" ({})", fmt::join(kinds, ", ")),
      swarm.completed, swarm.failed, swarm.hangs, swarm.broken.size(),
      print_count(static_cast<double>(swarm.events)), swarm.wall_seconds);
  for (const auto& [seed, what] : swarm.broken)
    text += fmt::format("\nseed {}: {}\n  replay: skein simulate --swarm {}", seed, what, seed);
  return text;
}

}  // namespace skein

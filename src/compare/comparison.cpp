#include "compare/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/field_names.h"
#include "skein/error.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

Json object(const Job& job) {
  Json out = Json::object();
  for (const JobOption& option : job) {
    if (option.name == "set")
      out["set"].push_back(option.value);
    else
      out[option.name] = option.flag ? Json(true) : Json(option.value);
  }
  return out;
}

Spread accuracy_at_samples(const Row& row, double samples) {
  std::vector<std::optional<double>> values;
  for (const Run& run : row.runs)
    if (run.ok()) values.push_back(accuracy_at(run.curve, samples));
  return spread_of(values);
}

// Of each worker over the rounds.
Json utilisation(const Row& row) {
  std::size_t workers = 0;
  for (const Run& run : row.runs) workers = std::max(workers, run.busy.size());
  Json out = Json::array();
  for (std::size_t rank = 0; rank < workers; ++rank) {
    std::vector<std::optional<double>> values;
    for (const Run& run : row.runs)
      if (run.ok() && rank < run.busy.size() && run.busy[rank] >= 0)
        values.emplace_back(run.busy[rank]);
    out.push_back({{"rank", rank}, {field::kBusyFraction, to_json(spread_of(values))}});
  }
  return out;
}

Json to_json(const Row& row, const Comparison& comparison, double samples) {
  Json figures = Json::object(), runs = Json::array();
  for (const auto& [key, spread] : row.figures(comparison.target > 0))
    figures[key] = to_json(spread);
  for (const Run& run : row.runs) runs.push_back(to_json(run));
  Json out{{"name", row.entry.name},
           {"strategy", row.strategy},
           {"options", object(row.entry.options)},
           {"command", row.runs.empty() ? "" : row.runs.front().command},
           {"figures", std::move(figures)},
           {field::kPerWorker, utilisation(row)},
           {"runs", std::move(runs)}};
  if (row.summed_speed > 0) out["summed_speed"] = row.summed_speed;
  if (samples > 0) out["accuracy_at_equal_samples"] = to_json(accuracy_at_samples(row, samples));
  if (row.search) out["search"] = to_json(*row.search);
  if (!row.timeline.workers.empty()) out["timeline"] = to_json(row.timeline);
  if (const std::string error = row.error(); !error.empty()) out["error"] = error;
  return out;
}

}  // namespace

std::vector<RunFigures> Row::good() const {
  std::vector<RunFigures> out;
  for (const Run& run : runs)
    if (run.ok()) out.push_back(run.figures);
  return out;
}

std::string Row::error() const {
  for (const Run& run : runs)
    if (!run.ok()) return run.error;
  return "";
}

bool Comparison::failed() const {
  return std::any_of(rows.begin(), rows.end(), [](const Row& row) { return !row.error().empty(); });
}

double equal_samples(const Comparison& comparison) {
  double least = 0;
  for (const Row& row : comparison.rows)
    for (const Run& run : row.runs) {
      if (!run.ok()) continue;
      double last = 0;
      for (const CurvePoint& point : run.curve)
        if (point.accuracy) last = std::max(last, point.samples);
      if (last == 0) return 0;
      least = least == 0 ? last : std::min(least, last);
    }
  return least;
}

Claims claims_of(const Comparison& comparison) {
  ClaimContext context;
  context.target = comparison.target;
  context.equal_samples = equal_samples(comparison);
  context.expect = comparison.expect;
  std::vector<ClaimRow> rows;
  rows.reserve(comparison.rows.size());
  for (const Row& row : comparison.rows) {
    ClaimRow claim;
    claim.name = row.entry.name;
    claim.strategy = row.strategy;
    claim.plain = row.entry.options.size() <= 1;
    claim.figures = row.figures(comparison.target > 0);
    if (context.equal_samples > 0)
      claim.at_equal_samples = accuracy_at_samples(row, context.equal_samples);
    rows.push_back(std::move(claim));
  }
  return claims_of(rows, context);
}

Json to_json(const Comparison& comparison) {
  const Claims claims = claims_of(comparison);
  const double samples = equal_samples(comparison);
  Json rows = Json::array(), figures = Json::array();
  for (const Row& row : comparison.rows) rows.push_back(to_json(row, comparison, samples));
  for (const Figure& each : all_figures())
    figures.push_back({{"key", each.key},
                       {"title", each.title},
                       {"unit", figure_unit(each)},
                       {"more_is_better", each.more_is_better},
                       {"comparable", each.comparable}});
  return {{"kind", comparison.kind},
          {"title", comparison.title},
          {"typed", comparison.typed},
          {field::kStarted, comparison.started},
          {"cores", std::thread::hardware_concurrency()},
          {"job", object(comparison.job)},
          {"workers", comparison.workers},
          {"rounds", comparison.rounds},
          {"spread", "lowest to highest of the rounds"},
          {field::kTargetAccuracy, comparison.target > 0 ? Json(comparison.target) : Json()},
          {"equal_samples", samples > 0 ? Json(samples) : Json()},
          {"running", comparison.running},
          {"complete", comparison.complete},
          {"figures", std::move(figures)},
          {"entries", std::move(rows)},
          {"claims", claims.sentences},
          {"recommendation", claims.recommendation}};
}

Comparison comparison_from_json(const Json& json) {
  Comparison out;
  try {
    out.kind = json.at("kind");
    out.title = json.at("title");
    out.rounds = json.at("rounds");
    out.complete = json.at("complete");
    if (!json.at(field::kTargetAccuracy).is_null()) out.target = json.at(field::kTargetAccuracy);
    for (const Json& entry : json.at("entries")) {
      Row& row = out.rows.emplace_back();
      row.entry.name = entry.at("name");
      row.strategy = entry.at("strategy");
      for (const Json& each : entry.at("runs")) {
        Run& run = row.runs.emplace_back();
        run.round = each.at("round");
        run.code = each.at("exit_code");
        run.error = each.value("error", "");
        run.figures = each.at("figures").get<RunFigures>();
      }
    }
  } catch (const Json::exception& error) {
    throw Error(fmt::format("this is no comparison: {}", error.what()));
  }
  return out;
}

Json read_comparison(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path file =
      fs::is_directory(path, none) ? fs::path(path) / "compare.json" : fs::path(path);
  std::ifstream in(file);
  if (!in.is_open())
    throw ConfigError(
        fmt::format("{}: cannot read it; expected a compare.json, or the --out of a comparison",
                    file.string()));
  Json json = Json::parse(in, nullptr, false);
  try {
    comparison_from_json(json);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", file.string(), error.what()));
  }
  return json;
}

}  // namespace skein::compare

#include "compare/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/field_names.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPoints = 400;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The first, the last, and evenly between them.
template <typename T>
std::vector<T> thinned(std::vector<T> points) {
  if (points.size() <= kMostPoints) return points;
  std::vector<T> out;
  out.reserve(kMostPoints);
  for (std::size_t i = 0; i < kMostPoints; ++i)
    out.push_back(points[i * (points.size() - 1) / (kMostPoints - 1)]);
  return out;
}

CurvePoint point_of(const Json& line) {
  CurvePoint point;
  point.seconds = line.value("seconds", 0.0);
  point.samples = line.value("samples", 0.0);
  if (const auto loss = line.find(field::kLoss); loss != line.end() && loss->is_number())
    point.loss = loss->get<double>();
  if (const auto found = line.find(field::kAccuracy); found != line.end() && found->is_number())
    point.accuracy = found->get<double>();
  return point;
}

// Of `train`; a line that is still on its way is left out.
void read_metrics(const std::filesystem::path& path, Run& run) {
  std::ifstream in(path);
  double last = -1;
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    if (line.value("kind", "") == "evaluation") run.curve.push_back(point_of(line));
    const auto distance = line.find(field::kConsensusDistance);
    if (distance == line.end() || !distance->is_number()) continue;
    const double value = distance->get<double>();
    if (value != last) run.consensus.push_back({line.value("seconds", 0.0), value});
    last = value;
  }
}

// Those that go without global communication know it when they come together, at the end at least.
void read_last_distance(const Json& result, Run& run) {
  const auto figures = result.find("figures");
  if (figures == result.end() || !figures->is_object()) return;
  const auto distance = figures->find(field::kConsensusDistance);
  if (distance == figures->end() || !distance->is_number()) return;
  const double value = distance->get<double>();
  if (run.consensus.empty() || run.consensus.back().value != value)
    run.consensus.push_back({result.value("seconds", 0.0), value});
}

// Of `simulate`.
void read_curves(const Json& result, Run& run) {
  if (const auto curve = result.find("curve"); curve != result.end())
    for (const Json& line : *curve) run.curve.push_back(point_of(line));
  if (const auto consensus = result.find("consensus"); consensus != result.end())
    for (const Json& line : *consensus)
      run.consensus.push_back({line.value("seconds", 0.0), line.value("value", 0.0)});
}

}  // namespace

void read_results(Run& run, double summed_speed) {
  const std::filesystem::path folder = run.folder;
  const Json result = Json::parse(read_text(folder / "result.json"), nullptr, false);
  if (!result.is_object()) {
    run.error = "it left no result.json";
    return;
  }
  run.figures = figures_of(result, summed_speed);
  if (result.contains(field::kPerWorker))
    for (const Json& worker : result[field::kPerWorker])
      run.busy.push_back(worker.value(field::kBusyFraction, -1.0));
  read_curves(result, run);
  if (std::filesystem::exists(folder / "metrics.jsonl")) {
    read_metrics(folder / "metrics.jsonl", run);
    read_last_distance(result, run);
  }
  run.curve = thinned(std::move(run.curve));
  run.consensus = thinned(std::move(run.consensus));
}

// Of the file's end: it may be long, and this is asked often.
std::optional<double> latest_accuracy(const std::filesystem::path& folder) {
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream in(folder / "metrics.jsonl", std::ios::binary | std::ios::ate);
  if (!in.is_open()) return std::nullopt;
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTail));
  std::optional<double> found;
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (line.is_object() && line.value("kind", "") == "evaluation") found = point_of(line).accuracy;
  }
  return found;
}

std::optional<double> accuracy_at(const std::vector<CurvePoint>& curve, double samples) {
  const CurvePoint* before = nullptr;
  for (const CurvePoint& point : curve) {
    if (!point.accuracy) continue;
    if (point.samples == samples) return point.accuracy;
    if (point.samples > samples) {
      if (before == nullptr) return std::nullopt;
      const double part = (samples - before->samples) / (point.samples - before->samples);
      return *before->accuracy + part * (*point.accuracy - *before->accuracy);
    }
    before = &point;
  }
  return std::nullopt;
}

Json to_json(const Run& run) {
  Json out{{"round", run.round},   {"seed", run.seed},      {"command", run.command},
           {"folder", run.folder}, {"exit_code", run.code}, {"wall_seconds", run.wall_seconds},
           {"reused", run.reused}, {"figures", run.figures}};
  if (!run.ok()) out["error"] = run.error;
  Json curve = Json::array(), consensus = Json::array(), busy = Json::array();
  for (const CurvePoint& each : run.curve)
    curve.push_back({{"seconds", each.seconds},
                     {"samples", each.samples},
                     {field::kLoss, each.loss},
                     {field::kAccuracy, each.accuracy ? Json(*each.accuracy) : Json()}});
  for (const ConsensusPoint& each : run.consensus)
    consensus.push_back({{"seconds", each.seconds}, {"value", each.value}});
  for (const double each : run.busy) busy.push_back(each < 0 ? Json() : Json(each));
  out["curve"] = std::move(curve);
  out["consensus"] = std::move(consensus);
  out[field::kBusyFraction] = std::move(busy);
  return out;
}

}  // namespace skein::compare

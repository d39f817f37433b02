#include "compare/figures.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/field_names.h"
#include "core/units.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;

std::optional<double> number(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Of those that are still there at the end.
std::optional<double> mean_of_workers(const Json& result, const char* key) {
  double sum = 0;
  int workers = 0;
  if (result.contains(field::kPerWorker))
    for (const Json& worker : result[field::kPerWorker])
      if (const auto value = number(worker, key)) {
        sum += *value;
        ++workers;
      }
  return workers > 0 ? std::optional(sum / workers) : std::nullopt;
}

// Three digits: what a run repeats.
std::string rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  const int digits = static_cast<int>(std::floor(std::log10(std::abs(value))));
  return fmt::format("{:.{}f}", value, std::min(6, std::max(0, 2 - digits)));
}

// A range's ends without the unit that its median has; bytes differ in theirs.
std::string print_end(const Figure& figure, double value) {
  if (!std::isfinite(value)) return "not reached";
  switch (figure.kind) {
    case Figure::Kind::bytes:
      return print_bytes(value);
    case Figure::Kind::percent:
      return fmt::format("{:.1f}", 100 * value);
    case Figure::Kind::count:
      return fmt::format("{:.0f}", value);
    default:
      return rounded(value);
  }
}

}  // namespace

const std::vector<Figure>& all_figures() {
  using Kind = Figure::Kind;
  static const std::vector<Figure> figures{
      {field::kSecondsToTarget, "time to target", Kind::seconds, false},
      {field::kAccuracy, "accuracy", Kind::percent, true},
      {field::kLoss, "loss", Kind::plain, false},
      {field::kSamplesPerSecond, "samples/s", Kind::count, true},
      {"of_summed_speed", "of S", Kind::percent, true},
      {field::kBusyFraction, "busy", Kind::percent, true},
      {"ms_per_1000_samples", "time/1k", Kind::milliseconds, false},
      {"waiting_ms_per_1000_samples", "waiting/1k", Kind::milliseconds, false},
      {field::kIterationMs, "iteration", Kind::milliseconds, false, false},
      {field::kExposedCommMs, "exposed", Kind::milliseconds, false, false},
      {field::kBytesSent, "sent", Kind::bytes, false}};
  return figures;
}

const Figure& figure(const std::string& key) {
  for (const Figure& each : all_figures())
    if (each.key == key) return each;
  SKEIN_CHECK(false, "no figure '{}'", key);
  return all_figures().front();
}

const char* figure_unit(const Figure& figure) {
  switch (figure.kind) {
    case Figure::Kind::seconds:
      return "s";
    case Figure::Kind::milliseconds:
      return "ms";
    case Figure::Kind::percent:
      return "%";
    case Figure::Kind::bytes:
      return "B";
    default:
      return "";
  }
}

std::string print_value(const Figure& figure, double value) {
  const std::string text = print_end(figure, value);
  const bool bare =
      !std::isfinite(value) || figure.kind == Figure::Kind::bytes || *figure_unit(figure) == '\0';
  return bare ? text : fmt::format("{} {}", text, figure_unit(figure));
}

std::string print_spread(const Figure& figure, const Spread& spread) {
  if (!spread.median)
    return spread.of <= 1 ? "not reached"
                          : fmt::format("reached in {} of {}", spread.count, spread.of);
  const std::string text = print_value(figure, *spread.median);
  const std::string low = print_end(figure, spread.low), high = print_end(figure, spread.high);
  return spread.of <= 1 || low == high ? text : fmt::format("{} ({} to {})", text, low, high);
}

RunFigures figures_of(const Json& result, double summed_speed) {
  RunFigures out;
  for (const Figure& each : all_figures())
    if (const auto value = number(result, each.key.c_str())) out[each.key] = *value;
  if (const auto step = result.find(field::kIterationMs); step != result.end() && step->is_object())
    if (const auto value = number(*step, "p50")) out[field::kIterationMs] = *value;
  if (const auto share = number(result, "utilisation")) out["of_summed_speed"] = *share;
  if (summed_speed > 0 && out.count(field::kSamplesPerSecond) != 0)
    out["of_summed_speed"] = out[field::kSamplesPerSecond] / summed_speed;
  if (const auto busy = mean_of_workers(result, field::kBusyFraction))
    out[field::kBusyFraction] = *busy;
  const auto speed = number(result, field::kSamplesPerSecond);
  if (!speed || *speed <= 0) return out;
  out["ms_per_1000_samples"] = 1e6 / *speed;
  if (const auto waiting = mean_of_workers(result, field::kWaitingFraction))
    out["waiting_ms_per_1000_samples"] = *waiting * 1e6 / *speed;
  return out;
}

RowFigures figures_over(const std::vector<RunFigures>& rounds, bool target) {
  RowFigures out;
  for (const Figure& each : all_figures()) {
    std::vector<std::optional<double>> values;
    values.reserve(rounds.size());
    for (const RunFigures& round : rounds) {
      const auto found = round.find(each.key);
      values.push_back(found == round.end() ? std::nullopt : std::optional<double>(found->second));
    }
    const bool time = each.key == field::kSecondsToTarget;
    const Spread spread = time ? spread_of_times(values) : spread_of(values);
    if (spread.count > 0 || (time && target && !rounds.empty())) out[each.key] = spread;
  }
  return out;
}

}  // namespace skein::compare

#include "compare/spread.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace skein::compare {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Spread of_known(const std::vector<std::optional<double>>& values, std::vector<double>& known) {
  Spread out;
  out.of = static_cast<int>(values.size());
  for (const auto& value : values)
    if (value) known.push_back(*value);
  out.count = static_cast<int>(known.size());
  if (known.empty()) return out;
  out.low = *std::min_element(known.begin(), known.end());
  out.high = *std::max_element(known.begin(), known.end());
  return out;
}

}  // namespace

Spread spread_of(const std::vector<std::optional<double>>& values) {
  std::vector<double> known;
  Spread out = of_known(values, known);
  if (!known.empty()) out.median = median(known);
  return out;
}

Spread spread_of_times(const std::vector<std::optional<double>>& values) {
  std::vector<double> known;
  Spread out = of_known(values, known);
  if (known.empty()) return out;
  known.resize(values.size(), INFINITY);
  if (out.count < out.of) out.high = INFINITY;
  const double middle = median(known);
  if (std::isfinite(middle)) out.median = middle;
  return out;
}

Apart apart(const Spread& a, const Spread& b) {
  if (a.count < 2 || b.count < 2) return Apart::unknown;
  return a.low > b.high || b.low > a.high ? Apart::beyond : Apart::within;
}

const char* apart_name(Apart apart) {
  switch (apart) {
    case Apart::within:
      return "within";
    case Apart::beyond:
      return "beyond";
    case Apart::unknown:
      break;
  }
  return "unknown";
}

nlohmann::json to_json(const Spread& spread) {
  nlohmann::json out{{"median", nullptr}, {"count", spread.count}, {"of", spread.of}};
  if (spread.median) out["median"] = *spread.median;
  if (spread.count > 0) out["low"] = spread.low;
  if (spread.count > 0)
    out["high"] = std::isfinite(spread.high) ? nlohmann::json(spread.high) : nlohmann::json();
  return out;
}

Spread spread_from_json(const nlohmann::json& json) {
  Spread out;
  out.count = json.at("count").get<int>();
  out.of = json.at("of").get<int>();
  if (!json.at("median").is_null()) out.median = json.at("median").get<double>();
  if (out.count > 0) out.low = json.at("low").get<double>();
  if (out.count > 0)
    out.high = json.at("high").is_null() ? INFINITY : json.at("high").get<double>();
  return out;
}

}  // namespace skein::compare

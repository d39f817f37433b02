#include "strategy/histogram.h"

#include <nlohmann/json.hpp>
#include <string>

namespace skein {

double Histogram::mean() const {
  double sum = 0, times = 0;
  for (const auto& [value, count] : counts_) {
    sum += static_cast<double>(value * count);
    times += static_cast<double>(count);
  }
  return times > 0 ? sum / times : 0;
}

nlohmann::json Histogram::json() const {
  auto out = nlohmann::json::object();
  for (const auto& [value, times] : counts_) out[std::to_string(value)] = times;
  return out;
}

}  // namespace skein

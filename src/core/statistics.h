// Summaries of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace skein {

// The value below which a part `q` (0 to 1) of the values lies; 0 when there are none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = std::lround(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace skein

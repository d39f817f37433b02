// A figure over several rounds: its median, and how far the rounds are apart.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace skein::compare {

struct Spread {
  std::optional<double> median;  // none: fewer than half of the rounds have a value
  double low = 0, high = 0;      // of the rounds that have one; of times, infinite if one has none
  int count = 0;                 // how many have one
  int of = 0;                    // how many rounds there are
};

// Of the values that are there; the others do not count.
Spread spread_of(const std::vector<std::optional<double>>& values);

// Of times until something was reached: a round that did not reach it took longer than any that
// did.
Spread spread_of_times(const std::vector<std::optional<double>>& values);

// Whether two figures differ by more than their rounds do among each other.
enum class Apart {
  unknown,  // one of them has a single round
  within,   // the ranges of the rounds overlap
  beyond    // they do not
};
Apart apart(const Spread& a, const Spread& b);

const char* apart_name(Apart apart);  // "unknown", "within", "beyond"

nlohmann::json to_json(const Spread& spread);
Spread spread_from_json(const nlohmann::json& json);

}  // namespace skein::compare

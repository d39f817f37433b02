#include "strategy/option_reader.h"

#include <fmt/format.h>

#include "core/parse_number.h"
#include "skein/error.h"

namespace skein {

std::string OptionReader::text(const std::string& key, const std::string& fallback) {
  known_ += (known_.empty() ? "" : ", ") + key;
  const auto found = left_.extract(key);
  return found ? found.mapped() : fallback;
}

bool OptionReader::flag(const std::string& key, bool fallback) {
  const std::string value = text(key, fallback ? "true" : "false");
  if (value == "true" || value == "1" || value == "yes" || value == "on") return true;
  if (value == "false" || value == "0" || value == "no" || value == "off") return false;
  throw ConfigError(fmt::format("strategy.{} = '{}': expected true or false", key, value));
}

double OptionReader::number(const std::string& key, double fallback, double low, double high) {
  const std::string value = text(key, fmt::format("{}", fallback));
  double result = 0;
  if (!parse_number(value, result) || !(result >= low && result <= high))
    throw ConfigError(
        fmt::format("strategy.{} = '{}': expected a number from {} to {}", key, value, low, high));
  return result;
}

std::int64_t OptionReader::whole(const std::string& key, std::int64_t fallback, std::int64_t low,
                                 std::int64_t high) {
  const std::string value = text(key, std::to_string(fallback));
  std::int64_t result = 0;
  if (!parse_number(value, result) || result < low || result > high)
    throw ConfigError(fmt::format("strategy.{} = '{}': expected a whole number from {} to {}", key,
                                  value, low, high));
  return result;
}

void OptionReader::finish() const {
  if (left_.empty()) return;
  throw ConfigError(fmt::format("strategy {} has no option '{}': it knows {}", strategy_,
                                left_.begin()->first, known_));
}

}  // namespace skein

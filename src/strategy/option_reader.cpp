#include "strategy/option_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/parse_number.h"
#include "skein/error.h"

namespace skein {
namespace {

// A limit above this is none that a person would think of.
constexpr double kNoLimit = 1 << 20;

std::string range_text(double low, double high) {
  return high >= kNoLimit ? fmt::format("{:g} or more", low)
                          : fmt::format("{:g} to {:g}", low, high);
}

// "a, b or c"
std::string alternatives(const std::vector<std::string>& words) {
  std::string text = words.front();
  for (std::size_t i = 1; i < words.size(); ++i)
    text += (i + 1 < words.size() ? ", " : " or ") + words[i];
  return text;
}

}  // namespace

std::string OptionReader::text(const std::string& key, const std::string& fallback,
                               const std::string& allowed, const std::string& what) {
  known_.push_back({key, fallback, allowed, what});
  auto found = left_.extract(key);
  if (!found) return fallback;
  return taken_.insert(std::move(found)).position->second;
}

std::string OptionReader::value_of(const std::string& key) const {
  const auto taken = taken_.find(key);
  return taken != taken_.end() ? taken->second
                               : std::ranges::find(known_, key, &OptionInfo::name)->fallback;
}

bool OptionReader::flag(const std::string& key, bool fallback, const std::string& what) {
  const std::string value = text(key, fallback ? "true" : "false", "true|false", what);
  if (value == "true" || value == "1" || value == "yes" || value == "on") return true;
  if (value == "false" || value == "0" || value == "no" || value == "off") return false;
  throw ConfigError(fmt::format("strategy.{} = '{}': expected true or false", key, value));
}

double OptionReader::number(const std::string& key, double fallback, double low, double high,
                            const std::string& what) {
  const std::string value = text(key, fmt::format("{}", fallback), range_text(low, high), what);
  double result = 0;
  if (!parse_number(value, result) || !(result >= low && result <= high))
    throw ConfigError(
        fmt::format("strategy.{} = '{}': expected a number from {} to {}", key, value, low, high));
  return result;
}

std::int64_t OptionReader::whole(const std::string& key, std::int64_t fallback, std::int64_t low,
                                 std::int64_t high, const std::string& what) {
  const std::string value =
      text(key, std::to_string(fallback),
           range_text(static_cast<double>(low), static_cast<double>(high)), what);
  std::int64_t result = 0;
  if (!parse_number(value, result) || result < low || result > high)
    throw ConfigError(fmt::format("strategy.{} = '{}': expected a whole number from {} to {}", key,
                                  value, low, high));
  return result;
}

std::size_t OptionReader::index_of(const std::string& key, const std::vector<std::string>& words,
                                   const std::string& what) {
  const std::string value =
      text(key, words.front(), fmt::format("{}", fmt::join(words, "|")), what);
  const auto found = std::ranges::find(words, value);
  if (found == words.end())
    throw ConfigError(
        fmt::format("strategy.{} = '{}': expected {}", key, value, alternatives(words)));
  return static_cast<std::size_t>(found - words.begin());
}

void OptionReader::finish() const {
  if (left_.empty()) return;
  std::vector<std::string> names;
  names.reserve(known_.size());
  for (const OptionInfo& each : known_) names.push_back(each.name);
  throw ConfigError(fmt::format("strategy {} has no option '{}': it knows {}", strategy_,
                                left_.begin()->first, fmt::join(names, ", ")));
}

}  // namespace skein

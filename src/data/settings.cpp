#include "data/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "core/parse_number.h"
#include "skein/error.h"

namespace skein {
const std::string* SettingsReader::find(const std::string& key) {
  known_.insert(key);
  const auto it = settings_.find(key);
  return it == settings_.end() ? nullptr : &it->second;
}

void SettingsReader::refuse(const std::string& key, const std::string& value,
                            const std::string& expected) const {
  throw ConfigError(fmt::format("{}.{}={}: expected {}", section_, key, value, expected));
}

std::int64_t SettingsReader::integer(const std::string& key, std::int64_t fallback,
                                     std::int64_t low, std::int64_t high) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  std::int64_t value = 0;
  if (!parse_number(*text, value) || value < low || value > high)
    refuse(key, *text, fmt::format("a whole number from {} to {}", low, high));
  return value;
}

bool SettingsReader::flag(const std::string& key, bool fallback) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  if (*text != "true" && *text != "false") refuse(key, *text, "true or false");
  return *text == "true";
}

std::uint64_t SettingsReader::seed(const std::string& key, std::uint64_t fallback,
                                   std::uint64_t run_seed) {
  const std::string* text = find(key);
  if (text == nullptr) return fallback;
  if (*text == "run") return run_seed;
  std::uint64_t value = 0;
  if (!parse_number(*text, value))
    refuse(key, *text,
           fmt::format("a whole number from 0 to {}, or run for the seed of the run",
                       std::numeric_limits<std::uint64_t>::max()));
  return value;
}

void SettingsReader::finish(const std::string& owner) const {
  for (const auto& [key, value] : settings_) {
    if (known_.contains(key)) continue;
    if (known_.empty())
      throw ConfigError(fmt::format("{}.{}={}: {} has no settings", section_, key, value, owner));
    throw ConfigError(fmt::format("{}.{}={}: {} has no such setting; it has {}", section_, key,
                                  value, owner, fmt::join(known_, ", ")));
  }
}

}  // namespace skein

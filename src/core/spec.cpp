#include "core/spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/parse_number.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein {
std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  if (text.empty()) return pieces;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

Spec::Spec(std::string_view what, std::string_view text) : what_(what), whole_(text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  name_ = text.substr(0, colon);
  if (name_.empty()) fail("expected NAME:KEY=VALUE,…");
  if (colon == text.size()) return;
  for (const std::string& piece : split_text(text.substr(colon + 1), ',')) {
    const std::size_t equals = piece.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == piece.size())
      fail(fmt::format("'{}': expected KEY=VALUE", piece));
    Entry entry{piece.substr(0, equals), piece.substr(equals + 1)};
    if (has(entry.key)) fail(fmt::format("{} is given twice", entry.key));
    entries_.push_back(std::move(entry));
  }
}

const Spec::Entry* Spec::find(std::string_view key) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  return found == entries_.end() ? nullptr : &*found;
}

bool Spec::has(std::string_view key) const { return find(key) != nullptr; }

const Spec::Entry* Spec::take(std::string_view key) {
  known_.emplace_back(key);
  for (Entry& entry : entries_)
    if (entry.key == key) entry.taken = true;
  return find(key);
}

std::string Spec::text(std::string_view key, const std::string& fallback) {
  const Entry* entry = take(key);
  return entry ? entry->value : fallback;
}

double Spec::number(std::string_view key, double fallback, double low, double high) {
  const Entry* entry = take(key);
  double value = fallback;
  if (entry && (!parse_number(entry->value, value) || !(value >= low && value <= high)))
    fail(fmt::format("{}={}: expected a number from {} to {}", key, entry->value, low, high));
  return value;
}

std::int64_t Spec::integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                           std::int64_t high) {
  const Entry* entry = take(key);
  std::int64_t value = fallback;
  if (entry && (!parse_number(entry->value, value) || value < low || value > high))
    fail(fmt::format("{}={}: expected a whole number from {} to {}", key, entry->value, low, high));
  return value;
}

std::chrono::nanoseconds Spec::duration(std::string_view key, std::chrono::nanoseconds fallback) {
  const Entry* entry = take(key);
  if (!entry) return fallback;
  try {
    return parse_duration(entry->value);
  } catch (const ConfigError& error) {
    fail(fmt::format("{}: {}", key, error.what()));
  }
}

double Spec::bandwidth(std::string_view key, double fallback) {
  const Entry* entry = take(key);
  if (!entry) return fallback;
  try {
    return parse_bandwidth(entry->value);
  } catch (const ConfigError& error) {
    fail(fmt::format("{}: {}", key, error.what()));
  }
}

void Spec::require(std::string_view key) const {
  if (!has(key)) fail(fmt::format("{} is missing", key));
}

void Spec::finish() const {
  for (const Entry& entry : entries_)
    if (!entry.taken)
      fail(fmt::format("unknown key '{}': expected {}", entry.key, fmt::join(known_, ", ")));
}

void Spec::fail(const std::string& problem) const {
  throw ConfigError(fmt::format("{} {}: {}", what_, whole_, problem));
}

}  // namespace skein

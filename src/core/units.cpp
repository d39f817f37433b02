#include "core/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "skein/error.h"

namespace skein {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Splits "25MB" in number and unit and multiplies. `units` are lower case.
double parse(std::string_view text, std::span<const Unit> units, std::string_view what,
             std::string_view allowed) {
  const auto fail = [&]() -> double {
    throw ConfigError(fmt::format("'{}' is not a {}: expected {}", text, what, allowed));
  };
  double number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || !std::isfinite(number) || number < 0) return fail();
  std::string_view tail(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!tail.empty() && tail.front() == ' ') tail.remove_prefix(1);
  const std::string name = lower(tail);
  for (const Unit& unit : units)
    if (unit.name == name) return number * unit.factor;
  if (name.empty() && number == 0) return 0;
  return fail();
}

std::string print(double value, std::span<const Unit> units) {
  const Unit* best = &units.front();
  for (const Unit& unit : units)
    if (std::abs(value) >= unit.factor) best = &unit;
  return fmt::format("{:.3g} {}", value / best->factor, best->name);
}

}  // namespace

std::size_t parse_bytes(std::string_view text) {
  static constexpr std::array<Unit, 12> units{{{"", 1},
                                               {"b", 1},
                                               {"k", 1e3},
                                               {"kb", 1e3},
                                               {"mb", 1e6},
                                               {"gb", 1e9},
                                               {"tb", 1e12},
                                               {"kib", 1024.0},
                                               {"mib", 1048576.0},
                                               {"gib", 1073741824.0},
                                               {"m", 1e6},
                                               {"g", 1e9}}};
  constexpr std::string_view allowed = "a number with B, KB, MB, GB, KiB, MiB or GiB, such as 25MB";
  const double value = parse(text, units, "size", allowed);
  if (value > 9e18 || value != std::floor(value))
    throw ConfigError(fmt::format("'{}' is not a size: expected {}", text, allowed));
  return static_cast<std::size_t>(value);
}

double parse_bandwidth(std::string_view text) {
  static constexpr std::array<Unit, 8> units{{{"bit", 0.125},
                                              {"kbit", 125},
                                              {"mbit", 125e3},
                                              {"gbit", 125e6},
                                              {"b/s", 1},
                                              {"kb/s", 1e3},
                                              {"mb/s", 1e6},
                                              {"gb/s", 1e9}}};
  constexpr std::string_view allowed =
      "a number with kbit, mbit, gbit, MB/s or GB/s, such as 1gbit";
  const double value = parse(text, units, "bandwidth", allowed);
  if (value <= 0)
    throw ConfigError(fmt::format("'{}' is not a bandwidth: expected {}", text, allowed));
  return value;
}

std::chrono::nanoseconds parse_duration(std::string_view text) {
  static constexpr std::array<Unit, 6> units{
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
  constexpr std::string_view allowed = "a number with ns, us, ms, s, m or h, such as 40ms";
  const double value = parse(text, units, "duration", allowed);
  if (value > 9e18) throw ConfigError(fmt::format("'{}' is not a duration: too long", text));
  return std::chrono::nanoseconds(std::llround(value));
}

std::string print_bytes(double bytes) {
  static constexpr std::array<Unit, 5> units{
      {{"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}}};
  return print(bytes, units);
}

std::string print_bandwidth(double bytes_per_second) {
  static constexpr std::array<Unit, 4> units{
      {{"bit", 0.125}, {"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}}};
  return print(bytes_per_second, units);
}

std::string print_duration(std::chrono::nanoseconds value) {
  static constexpr std::array<Unit, 4> units{{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  return print(static_cast<double>(value.count()), units);
}

std::string print_count(double value) {
  static constexpr std::array<Unit, 4> units{{{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}}};
  std::string text = print(value, units);
  if (text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace skein

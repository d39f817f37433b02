#include "advise/candidate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "strategy/registry.h"

namespace skein::advise {
namespace {

bool has(const Setup& setup, const char* key, const char* value) {
  const auto found = setup.settings.find(key);
  return found != setup.settings.end() && found->second == value;
}

}  // namespace

bool is_bf16(const Setup& setup) { return has(setup, "wire", "bf16"); }

bool is_synchronous(const Setup& setup) { return traits_of(setup.strategy).synchronous; }

std::string name_of(const Setup& setup) {
  std::string name = setup.strategy;
  if (has(setup, "balance", "true")) name += ", balanced";
  if (is_bf16(setup)) name += ", bf16";
  return name;
}

std::string settings_of(const Setup& setup) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : setup.settings) {
    if (key == "balance" && value == "true")
      parts.emplace_back("balance");
    else
      parts.push_back(fmt::format("{} {}", key, value));
  }
  if (setup.one_level) parts.emplace_back("one level");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<std::string> options_of(const Setup& setup) {
  std::vector<std::string> words{"--strategy", setup.strategy};
  for (const auto& [key, value] : setup.settings) {
    const bool option = key == "wire" || key == "topology" || key == "rate";
    words.push_back(option ? "--" + key : "--set");
    words.push_back(option ? value : fmt::format("strategy.{}={}", key, value));
  }
  if (setup.one_level) words.insert(words.end(), {"--levels", "one"});
  return words;
}

}  // namespace skein::advise

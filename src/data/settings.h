// Settings of one section as the user gave them: `--set data.train=500` is {"train", "500"} of the
// section "data". No torch here.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace skein {

using Settings = std::map<std::string, std::string>;  // keys without the section's name

// Reads a section strictly. Each getter returns the setting of that name or, where it was not
// given, `fallback`; a value that is not of the type or out of range is a ConfigError that names
// the setting, the value and what is allowed. Keeps a reference to `settings`.
class SettingsReader {
 public:
  SettingsReader(std::string section, const Settings& settings)
      : section_(std::move(section)), settings_(settings) {}

  std::int64_t integer(const std::string& key, std::int64_t fallback, std::int64_t low,
                       std::int64_t high);
  bool flag(const std::string& key, bool fallback);  // true or false
  // A number, or "run" for the seed of the run.
  std::uint64_t seed(const std::string& key, std::uint64_t fallback, std::uint64_t run_seed);

  // To be called after the last getter: ConfigError for a setting that none of them asked for,
  // with the list of those that are known. `owner` says whose they are, e.g. "model 'cnn'".
  void finish(const std::string& owner) const;

 private:
  // The text given for `key`, or null. Remembers that `key` is known.
  const std::string* find(const std::string& key);
  [[noreturn]] void refuse(const std::string& key, const std::string& value,
                           const std::string& expected) const;

  std::string section_;
  const Settings& settings_;
  std::set<std::string> known_;
};

}  // namespace skein

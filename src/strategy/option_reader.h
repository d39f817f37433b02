// Reads a strategy's options from text, strictly, and notes what there is to know of each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace skein {

// An option as help, errors and documents name it.
struct OptionInfo {
  std::string name;
  std::string fallback;  // its value where nobody says it
  std::string allowed;   // "true|false", "1 or more"
  std::string what;      // what it does, in a few words
};

// Each option must be asked for once; what is left over is an error that lists what is known.
class OptionReader {
 public:
  OptionReader(std::string strategy, const std::map<std::string, std::string>& options)
      : strategy_(std::move(strategy)), left_(options) {}

  bool given(const std::string& key) const { return left_.contains(key) || taken_.contains(key); }

  // Of an option that was asked for already.
  std::string value_of(const std::string& key) const;

  // ConfigError, naming the option, its value and what is allowed, for every other value.
  std::string text(const std::string& key, const std::string& fallback, const std::string& allowed,
                   const std::string& what);
  bool flag(const std::string& key, bool fallback, const std::string& what);
  double number(const std::string& key, double fallback, double low, double high,
                const std::string& what);
  std::int64_t whole(const std::string& key, std::int64_t fallback, std::int64_t low,
                     std::int64_t high, const std::string& what);

  // One of these words, of which the first is the default.
  template <typename Value>
  Value choice(const std::string& key, const std::vector<std::pair<const char*, Value>>& choices,
               const std::string& what) {
    std::vector<std::string> words;
    words.reserve(choices.size());
    for (const auto& [word, value] : choices) words.emplace_back(word);
    return choices[index_of(key, words, what)].second;
  }

  // Throws ConfigError if an option was given that nobody asked for.
  void finish() const;

  // All that was asked for, in order.
  const std::vector<OptionInfo>& known() const { return known_; }

 private:
  std::size_t index_of(const std::string& key, const std::vector<std::string>& words,
                       const std::string& what);

  std::string strategy_;
  std::map<std::string, std::string> left_, taken_;
  std::vector<OptionInfo> known_;
};

}  // namespace skein

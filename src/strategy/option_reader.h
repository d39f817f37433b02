// Reads a strategy's options from text, strictly.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace skein {

// Every option must be asked for once; what is left over is an error that lists what is known.
class OptionReader {
 public:
  OptionReader(std::string strategy, const std::map<std::string, std::string>& options)
      : strategy_(std::move(strategy)), left_(options) {}

  std::string text(const std::string& key, const std::string& fallback);
  bool flag(const std::string& key, bool fallback);
  double number(const std::string& key, double fallback, double low, double high);
  std::int64_t whole(const std::string& key, std::int64_t fallback, std::int64_t low,
                     std::int64_t high);

  // Throws ConfigError if an option was given that nobody asked for.
  void finish() const;

 private:
  std::string strategy_;
  std::map<std::string, std::string> left_;
  std::string known_;
};

}  // namespace skein

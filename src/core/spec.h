// Options that have parts: NAME:KEY=VALUE,KEY=VALUE.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace skein {

// Every key is asked for once, by the type it should have; finish() refuses what nobody asked for.
// All errors are ConfigErrors that begin with `what` and the whole text.
class Spec {
 public:
  Spec(std::string_view what, std::string_view text);

  const std::string& name() const { return name_; }
  bool has(std::string_view key) const;

  std::string text(std::string_view key, const std::string& fallback);
  double number(std::string_view key, double fallback, double low, double high);
  std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                       std::int64_t high);
  std::chrono::nanoseconds duration(std::string_view key, std::chrono::nanoseconds fallback);
  double bandwidth(std::string_view key, double fallback);  // bytes per second

  // Throws unless the key is there.
  void require(std::string_view key) const;
  void finish() const;

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  struct Entry {
    std::string key, value;
    bool taken = false;
  };
  const Entry* take(std::string_view key);
  const Entry* find(std::string_view key) const;

  std::string what_, whole_, name_;
  std::vector<Entry> entries_;
  std::vector<std::string> known_;
};

// The pieces of `text` between separators, in order; none for an empty text.
std::vector<std::string> split_text(std::string_view text, char separator);

}  // namespace skein

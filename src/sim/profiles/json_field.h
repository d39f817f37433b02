// Values of a JSON file from outside, checked as they are read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/clock.h"

namespace skein::sim {

using Milliseconds = std::chrono::duration<double, std::milli>;

// The JSON in a file. ConfigError when it is missing, unreadable, larger than `most_bytes` or not
// JSON, with the line and column.
nlohmann::json read_json(const std::filesystem::path& path, std::uintmax_t most_bytes);

// A value that knows where it stands. Everything throws ConfigError that says where, what was
// expected and what is there. The JSON must outlive it.
class JsonField {
 public:
  JsonField(const nlohmann::json& value, const std::filesystem::path& file)
      : JsonField(value, file.string(), "") {}

  // That it is an object with all of these keys and no other.
  void require_keys(std::initializer_list<std::string_view> keys) const;
  JsonField operator[](const char* key) const;  // after require_keys()

  std::vector<JsonField> elements(std::size_t least, std::size_t most) const;
  std::string text() const;
  std::int64_t count(std::int64_t most) const;  // a whole number from 1
  Duration time(Milliseconds most) const;  // a number of milliseconds from 0, to the nanosecond

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  JsonField(const nlohmann::json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}
  [[noreturn]] void expected(const std::string& what) const;

  const nlohmann::json* value_;
  std::string file_, path_;
};

}  // namespace skein::sim

#include <fmt/format.h>

#include <charconv>

#include "skein/checkpoint.h"
#include "skein/error.h"

namespace skein {

std::string Resumed::text(const std::string& name, const std::string& fallback) const {
  const auto found = values.find(name);
  return found == values.end() ? fallback : found->second;
}

std::int64_t Resumed::number(const std::string& name, std::int64_t fallback) const {
  const auto found = values.find(name);
  if (found == values.end()) return fallback;
  const std::string& text = found->second;
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size())
    throw ConfigError(fmt::format("{}: '{}' is '{}'; expected a whole number", path, name, text));
  return value;
}

}  // namespace skein

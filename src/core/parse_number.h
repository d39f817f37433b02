// Numbers as people write them, strictly.
#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace skein {

// True, and `value` set, when all of `text` is one number of that type.
template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, value);
  return code == std::errc() && rest == end;
}

}  // namespace skein

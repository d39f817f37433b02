#include "skein/parameter_group.h"

#include <algorithm>
#include <string_view>

namespace skein {
namespace {

// What a '*' took is given back character by character where the rest does not fit.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

WhichParameters named(const std::string& pattern) {
  return [pattern](const ParameterInfo& parameter) {
    return std::ranges::any_of(parameter.names,
                               [&](const std::string& name) { return matches(pattern, name); });
  };
}

}  // namespace skein

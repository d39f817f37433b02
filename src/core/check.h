// Broken invariants: a bug in Skein, never the user's doing. Active in every build.
#pragma once

#include <fmt/format.h>

#include <string>

namespace skein::detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               const std::string& message);
}

// Prints what was expected, where, and the formatted message, then aborts.
#define SKEIN_CHECK(expression, ...)                                                            \
  do {                                                                                          \
    if (!(expression)) [[unlikely]]                                                             \
      ::skein::detail::check_failed(#expression, __FILE__, __LINE__, fmt::format(__VA_ARGS__)); \
  } while (false)

// What every kernel asks of its spans.
#pragma once

#include "core/span.h"

namespace skein {

inline void check_operand(Span span) {
  SKEIN_CHECK(span.device == Device::cpu, "a CPU kernel was given memory of a device");
}

// Checks that all have the first one's count, and returns it.
template <typename... Rest>
std::size_t common_count(Span first, Rest... rest) {
  check_operand(first);
  [[maybe_unused]] const auto check = [&](Span other) {
    check_operand(other);
    SKEIN_CHECK(other.count == first.count, "spans of {} and {} elements in one operation",
                first.count, other.count);
  };
  (check(rest), ...);
  return first.count;
}

}  // namespace skein

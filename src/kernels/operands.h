// What every kernel asks of its spans.
#pragma once

#include "core/span.h"

namespace skein {

// Checks that all have the first one's count and kind of memory. Returns how many elements there
// are to work on: none where memory is absent.
template <typename... Rest>
std::size_t common_count(Span first, Rest... rest) {
  SKEIN_CHECK(first.device != Device::cuda, "a CPU kernel was given memory of a device");
  [[maybe_unused]] const auto check = [&](Span other) {
    SKEIN_CHECK(other.device == first.device, "memory of different kinds in one operation");
    SKEIN_CHECK(other.count == first.count, "spans of {} and {} elements in one operation",
                first.count, other.count);
  };
  (check(rest), ...);
  return first.device == Device::absent ? 0 : first.count;
}

}  // namespace skein

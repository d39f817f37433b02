// A whole number as two floats that are whole numbers, so that it survives float32 messages.
#pragma once

#include <cstdint>

#include "core/span.h"

namespace skein {

inline constexpr std::size_t kCountParts = 2;
inline constexpr std::int64_t kMostCount = (std::int64_t{1} << 48) - 1;

// Requires 0 ≤ count ≤ kMostCount.
inline void put_count(Span parts, std::int64_t count) {
  parts[0] = static_cast<float>(count & 0xffffff);
  parts[1] = static_cast<float>(count >> 24);
}

inline std::int64_t get_count(Span parts) {
  return static_cast<std::int64_t>(parts[0]) + (static_cast<std::int64_t>(parts[1]) << 24);
}

}  // namespace skein

// A double, or any 64 bits, as floats that are whole numbers, so that its bits pass through sums on
// float32 in which all others contribute zero.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/span.h"

namespace skein {

inline constexpr std::size_t kExactParts = 4;

// The place of the `index`-th number in a row of them.
inline Range exact_place(int index) {
  return {static_cast<std::size_t>(index) * kExactParts, kExactParts};
}

inline void put_bits(Span parts, std::uint64_t bits) {
  for (float& part : parts) {
    part = static_cast<float>(bits & 0xffff);
    bits >>= 16;
  }
}

inline std::uint64_t get_bits(Span parts) {
  std::uint64_t bits = 0;
  for (std::size_t k = kExactParts; k-- > 0;)
    bits = bits << 16 | static_cast<std::uint64_t>(parts[k]);
  return bits;
}

inline void put_exact(Span parts, double value) {
  put_bits(parts, std::bit_cast<std::uint64_t>(value));
}

inline double get_exact(Span parts) { return std::bit_cast<double>(get_bits(parts)); }

}  // namespace skein

#include "kernels/bf16.h"

#include <bit>
#include <cstdint>

#include "kernels/clones.h"
#include "kernels/operands.h"
#include "kernels/threads.h"

namespace skein {
namespace {

// The bfloat16 of a float32, both as bits. A NaN whose set bits are all in the lower half would
// become an infinity; it is made quiet instead.
[[gnu::always_inline]] inline std::uint32_t upper_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  const std::uint32_t quiet = bits >> 16 | 0x40;
  return (bits & 0x7FFFFFFF) > 0x7F800000 ? quiet : rounded;
}

[[gnu::always_inline]] inline float lower(float packed) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(packed) << 16);
}

[[gnu::always_inline]] inline float upper(float packed) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(packed) & 0xFFFF0000);
}

// Value i and value i + ⌈count/2⌉ share a float: halves of a vector, not neighbours, so that all is
// read and written in order.
SKEIN_CLONES void pack_loop(float* __restrict packed, const float* __restrict low,
                            const float* __restrict high, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    packed[i] = std::bit_cast<float>(upper_half(low[i]) | upper_half(high[i]) << 16);
}

SKEIN_CLONES void unpack_loop(float* __restrict low, float* __restrict high,
                              const float* __restrict packed, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    low[i] = lower(packed[i]);
    high[i] = upper(packed[i]);
  }
}

SKEIN_CLONES void add_loop(float* __restrict low, float* __restrict high,
                           const float* __restrict packed, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    low[i] += lower(packed[i]);
    high[i] += upper(packed[i]);
  }
}

SKEIN_CLONES void round_loop(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::bit_cast<float>(upper_half(values[i]) << 16);
}

SKEIN_CLONES void restore_loop(float* __restrict values, const float* __restrict exact,
                               std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float value = values[i];
    values[i] =
        std::bit_cast<std::uint32_t>(value) == upper_half(exact[i]) << 16 ? exact[i] : value;
  }
}

// How many values to work on: none where memory is absent.
std::size_t checked_count(Span values, Span packed) {
  SKEIN_CHECK(packed.count == packed_count(values.count), "{} floats for {} values of bfloat16",
              packed.count, values.count);
  const std::size_t floats = common_count(packed, Span{nullptr, packed.count, values.device});
  return floats == 0 ? 0 : values.count;
}

}  // namespace

void to_bf16(Span packed, Span values) {
  const std::size_t count = checked_count(values, packed), pairs = count / 2;
  if (count == 0) return;
  const std::size_t half = packed.count;
  parallel(pairs, [=](Range part) {
    const float* const low = values.data + part.offset;
    pack_loop(packed.data + part.offset, low, low + half, part.count);
  });
  if (half > pairs) packed[pairs] = std::bit_cast<float>(upper_half(values[pairs]));
}

void from_bf16(Span values, Span packed) {
  const std::size_t count = checked_count(values, packed), pairs = count / 2;
  if (count == 0) return;
  const std::size_t half = packed.count;
  parallel(pairs, [=](Range part) {
    float* const low = values.data + part.offset;
    unpack_loop(low, low + half, packed.data + part.offset, part.count);
  });
  if (half > pairs) values[pairs] = lower(packed[pairs]);
}

void add_bf16(Span values, Span packed) {
  const std::size_t count = checked_count(values, packed), pairs = count / 2;
  if (count == 0) return;
  const std::size_t half = packed.count;
  parallel(pairs, [=](Range part) {
    float* const low = values.data + part.offset;
    add_loop(low, low + half, packed.data + part.offset, part.count);
  });
  if (half > pairs) values[pairs] += lower(packed[pairs]);
}

void round_to_bf16(Span values) {
  parallel(common_count(values),
           [=](Range part) { round_loop(values.data + part.offset, part.count); });
}

void restore_rounded(Span values, Span exact) {
  parallel(common_count(values, exact), [=](Range part) {
    restore_loop(values.data + part.offset, exact.data + part.offset, part.count);
  });
}

}  // namespace skein

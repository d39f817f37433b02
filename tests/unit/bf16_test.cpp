#include "kernels/bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/arena.h"
#include "core/rng.h"

namespace skein {
namespace {

using Limits = std::numeric_limits<float>;

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float from_bits(std::uint32_t value) { return std::bit_cast<float>(value); }

Span span_of(std::vector<float>& values) { return {values.data(), values.size()}; }
Span span_of(std::vector<std::uint16_t>& packed) {
  return {packed.data(), packed.size(), Device::cpu, Type::bf16};
}

// There and back, with guards around the packed vector.
std::vector<float> travelled(std::vector<float> values) {
  std::vector<std::uint16_t> packed(values.size() + 2, 12345);
  const Span inner = span_of(packed).at({1, values.size()});
  to_bf16(inner, span_of(values));
  EXPECT_EQ(packed.front(), 12345);
  EXPECT_EQ(packed.back(), 12345);
  std::vector<float> arrived(values.size());
  from_bf16(span_of(arrived), inner);
  return arrived;
}

float travelled(float value) { return travelled(std::vector<float>{value}).front(); }

// By arithmetic instead of bits: the nearest multiple of the value's spacing, ties to even.
float nearest(float value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double spacing = std::ldexp(1.0, std::max(exponent, -125) - 8);
  const double rounded = std::nearbyint(static_cast<double>(value) / spacing) * spacing;
  return static_cast<float>(rounded);  // beyond the largest: infinity, as float32 has the range
}

TEST(Bf16, SpecialValuesStay) {
  for (const float value : {0.0F, -0.0F, 1.0F, -1.0F, 0.5F, Limits::infinity(), -Limits::infinity(),
                            Limits::min(), from_bits(0x00010000), from_bits(0x7F7F0000)})
    EXPECT_EQ(bits(travelled(value)), bits(value)) << value;
  // Whose set bits are all in the half that is dropped, and others.
  for (const std::uint32_t nan : {0x7F800001U, 0xFF800001U, 0x7FC00000U, 0xFFFFFFFFU, 0x7FBFFFFFU})
    EXPECT_TRUE(std::isnan(travelled(from_bits(nan)))) << std::hex << nan;
}

TEST(Bf16, RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(bits(travelled(from_bits(0x3F808000))), 0x3F800000U);  // a tie, down to even
  EXPECT_EQ(bits(travelled(from_bits(0x3F808001))), 0x3F810000U);
  EXPECT_EQ(bits(travelled(from_bits(0x3F818000))), 0x3F820000U);  // a tie, up to even
  EXPECT_EQ(bits(travelled(from_bits(0x3F817FFF))), 0x3F810000U);
  EXPECT_EQ(travelled(Limits::max()), Limits::infinity());
  EXPECT_EQ(travelled(-Limits::max()), -Limits::infinity());
  EXPECT_EQ(bits(travelled(from_bits(0x7F7F7FFF))), 0x7F7F0000U);  // the last that stays finite
  EXPECT_EQ(bits(travelled(from_bits(0x00000001))), 0U);           // subnormal
  EXPECT_EQ(bits(travelled(from_bits(0x00018000))), 0x00020000U);
}

TEST(Bf16, IsTheNearestWithinTheBoundForEveryExponent) {
  Rng rng(7);
  for (std::uint32_t exponent = 0; exponent < 254; ++exponent)
    for (int i = 0; i < 64; ++i) {
      const auto random = static_cast<std::uint32_t>(rng.below(1U << 23));
      const float value =
          from_bits(static_cast<std::uint32_t>(i & 1) << 31 | exponent << 23 | random);
      const float got = travelled(value);
      EXPECT_EQ(got, nearest(value)) << value;
      if (exponent > 0) {
        EXPECT_LE(std::abs(got - value), std::ldexp(std::abs(value), -8));
      }
    }
}

TEST(Bf16, EveryKernelRoundsTheSameAtEveryCount) {
  Rng rng(3);
  for (const std::size_t count : {0, 1, 2, 3, 7, 16, 31, 32, 33, 1000, 4097}) {
    std::vector<float> values(count), sum(count), rounded;
    for (float& value : values) value = static_cast<float>(rng.normal());
    for (float& value : sum) value = static_cast<float>(rng.normal());
    std::vector<float> want(count);
    std::vector<std::uint16_t> packed(count);
    const std::vector<float> arrived = travelled(values);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_EQ(arrived[i], nearest(values[i])) << i << " of " << count;
      want[i] = sum[i] + arrived[i];
    }
    to_bf16(span_of(packed), span_of(values));
    add_bf16(span_of(sum), span_of(packed));
    EXPECT_EQ(sum, want) << count;
    rounded = values;
    round_to_bf16(span_of(rounded));
    EXPECT_EQ(rounded, arrived) << count;
  }
}

TEST(Bf16, RestoreGivesBackWhatNobodyWrote) {
  const float exact = 1.00001F;
  std::vector<float> values{1.0F, 1.0078125F, 2.0F, exact}, exacts{exact, exact, exact, exact};
  restore_rounded(span_of(values), span_of(exacts));
  EXPECT_EQ(values, (std::vector<float>{exact, 1.0078125F, 2.0F, exact}));
}

TEST(Bf16, AbsentMemoryIsLeftAlone) {
  const auto values = allocate_absent(101), packed = allocate_absent_of(Type::bf16, 101);
  to_bf16(packed->span(), values->span());
  from_bf16(values->span(), packed->span());
  add_bf16(values->span(), packed->span());
  round_to_bf16(values->span());
  restore_rounded(values->span(), values->span());
}

TEST(Bf16DeathTest, CountsMustFit) {
  std::vector<float> values(5);
  std::vector<std::uint16_t> packed(2);
  EXPECT_DEATH(to_bf16(span_of(packed), span_of(values)), "2 values of bfloat16 for 5");
  EXPECT_DEATH(to_bf16(span_of(values), span_of(values)), "another type");
}

}  // namespace
}  // namespace skein

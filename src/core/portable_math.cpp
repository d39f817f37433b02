#include "core/portable_math.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>

namespace skein {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kMantissaBits = 52, kExponentBias = 1023;

// ln 2 in two parts: an exponent times the first is exact.
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;

// 2/3, 2/5, 2/7, …: log((1 + s) / (1 − s)) = 2s + s³ Σ a_n s²ⁿ. What is left out is below 2⁻⁶⁵ of
// the sum, as s is at most 0.172.
constexpr auto kLogSeries = [] {
  std::array<double, 11> terms{};
  for (std::size_t n = 0; n < terms.size(); ++n) terms[n] = 2.0 / static_cast<double>(2 * n + 3);
  return terms;
}();

// 1/2!, 1/3!, …: exp(r) = 1 + r + r² Σ a_n rⁿ. What is left out is below 2⁻⁶³, as r is at most
// 0.347.
constexpr auto kExpSeries = [] {
  std::array<double, 13> terms{};
  double factorial = 1;
  for (std::size_t n = 0; n < terms.size(); ++n) {
    factorial *= static_cast<double>(n + 2);
    terms[n] = 1.0 / factorial;
  }
  return terms;
}();

template <std::size_t n>
double horner(const std::array<double, n>& terms, double x) {
  double sum = terms[n - 1];
  for (std::size_t i = n - 1; i-- > 0;) sum = sum * x + terms[i];
  return sum;
}

// Requires −1022 ≤ exponent ≤ 1023.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + kExponentBias)
                               << kMantissaBits);
}

struct Parts {
  double mantissa;  // √½ … √2
  int exponent;
};

Parts split(double x) {
  int exponent = -kExponentBias;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent -= 54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  exponent += static_cast<int>(bits >> kMantissaBits);
  constexpr std::uint64_t mask = (std::uint64_t{1} << kMantissaBits) - 1;
  const double mantissa = std::bit_cast<double>((bits & mask) | std::bit_cast<std::uint64_t>(1.0));
  if (mantissa > std::numbers::sqrt2) return {0.5 * mantissa, exponent + 1};
  return {mantissa, exponent};
}

}  // namespace

double portable_log(double x) {
  if (!(x > 0)) return x == 0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
  if (x == kInfinity) return x;
  const auto [mantissa, exponent] = split(x);
  const double f = mantissa - 1, k = exponent;
  const double s = f / (2 + f), square = s * s;
  // 2s = f − f²/2 + s·f²/2: this way the first and largest term, f, is exact.
  const double half = 0.5 * f * f;
  const double rest = s * (half + square * horner(kLogSeries, square)) + k * kLn2Low;
  return k * kLn2High - ((half - rest) - f);
}

double portable_exp(double x) {
  if (x != x) return x;
  if (x > 710) return kInfinity;
  if (x < -746) return 0;
  const int k = static_cast<int>(x * std::numbers::log2e + (x < 0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2High) - k * kLn2Low;
  const double y = 1 + (r + r * r * horner(kExpSeries, r));
  // In two steps: 2ᵏ itself may lie outside the range of normal numbers. Only the second can round.
  const int first = k / 2;
  return y * power_of_two(first) * power_of_two(k - first);
}

}  // namespace skein

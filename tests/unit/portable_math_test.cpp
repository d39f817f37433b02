#include "core/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/rng.h"
#include "unit/digest.h"

namespace skein {
namespace {

using Limits = std::numeric_limits<double>;

// How far `got` is from `expected`, in units of the last place of the double nearest to `expected`.
double error_ulp(double got, long double expected) {
  const double nearest = std::abs(static_cast<double>(expected));
  const double ulp = std::nextafter(nearest, Limits::infinity()) - nearest;
  return static_cast<double>(std::abs(static_cast<long double>(got) - expected) / ulp);
}

double log_error_ulp(double x) {
  return error_ulp(portable_log(x), std::log(static_cast<long double>(x)));
}

double exp_error_ulp(double x) {
  return error_ulp(portable_exp(x), std::exp(static_cast<long double>(x)));
}

double random_normal_number(Rng& rng) {
  while (true) {
    const double x = std::bit_cast<double>(rng() >> 1);
    if (std::isnormal(x)) return x;
  }
}

TEST(PortableLog, IsWithinOneUlpOverAllNormalNumbers) {
  Rng rng(1);
  double worst = 0;
  for (int i = 0; i < 300000; ++i)
    worst = std::max(worst, log_error_ulp(random_normal_number(rng)));
  EXPECT_LT(worst, 1.0);
}

TEST(PortableLog, IsWithinOneUlpAroundOneWhereTheResultVanishes) {
  Rng rng(2);
  double worst = 0;
  for (int i = 0; i < 300000; ++i) worst = std::max(worst, log_error_ulp(rng.uniform(0.5, 2.0)));
  for (double distance = 0.25; distance > 1e-16; distance /= 2) {
    worst = std::max({worst, log_error_ulp(1 + distance), log_error_ulp(1 - distance)});
  }
  EXPECT_LT(worst, 1.0);
}

TEST(PortableLog, HandlesEveryEdge) {
  EXPECT_EQ(portable_log(1), 0);
  EXPECT_EQ(portable_log(0.0), -Limits::infinity());
  EXPECT_EQ(portable_log(-0.0), -Limits::infinity());
  EXPECT_EQ(portable_log(Limits::infinity()), Limits::infinity());
  for (const double x : {-1.0, -Limits::denorm_min(), -Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(portable_log(x))) << x;
  }
  for (const double x : {Limits::min(), Limits::max(), Limits::denorm_min(), 1e-310, 0x1p-1022}) {
    EXPECT_LT(log_error_ulp(x), 1.0) << x;
  }
}

TEST(PortableExp, IsWithinTwoUlpWhereTheResultIsNormal) {
  Rng rng(3);
  double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    worst = std::max({worst, exp_error_ulp(rng.uniform(-708.39, 709.78)),
                      exp_error_ulp(rng.uniform(-1, 1)), exp_error_ulp(rng.uniform(-40, 0))});
  }
  EXPECT_LT(worst, 2.0);
}

TEST(PortableExp, HandlesEveryEdge) {
  EXPECT_EQ(portable_exp(0.0), 1);
  EXPECT_EQ(portable_exp(-0.0), 1);
  EXPECT_EQ(portable_exp(1e-300), 1);
  EXPECT_EQ(portable_exp(Limits::infinity()), Limits::infinity());
  EXPECT_EQ(portable_exp(-Limits::infinity()), 0);
  EXPECT_TRUE(std::isnan(portable_exp(Limits::quiet_NaN())));
  EXPECT_LT(exp_error_ulp(709.782712893383973096), 2.0);
  for (const double x : {709.7828, 709.9, 710.1, 1e9, Limits::max()}) {
    EXPECT_EQ(portable_exp(x), Limits::infinity()) << x;
  }
  for (const double x : {-745.2, -745.9, -746.1, -1e9, Limits::lowest()}) {
    EXPECT_EQ(portable_exp(x), 0) << x;
  }
}

TEST(PortableExp, KeepsSubnormalResultsToTheirLastPlace) {
  EXPECT_EQ(portable_exp(-745.0), Limits::denorm_min());
  for (double x = -745; x < -708; x += 0.37) EXPECT_LT(exp_error_ulp(x), 2.0) << x;
}

TEST(PortableMath, InvertsItself) {
  Rng rng(4);
  for (int i = 0; i < 10000; ++i) {
    const double x = rng.uniform(-30, 30);
    EXPECT_NEAR(portable_log(portable_exp(x)), x, 4e-15 * std::max(1.0, std::abs(x)));
  }
}

TEST(PortableMath, HasTheSameBitsEverywhere) {
  Rng rng(5);
  Digest logs, exps;
  for (int i = 0; i < 100000; ++i) {
    logs.add(portable_log(random_normal_number(rng)));
    exps.add(portable_exp(rng.uniform(-745, 709)));
  }
  EXPECT_EQ(logs.value(), 6644433312043907631u);
  EXPECT_EQ(exps.value(), 8635276538442497437u);
}

}  // namespace
}  // namespace skein

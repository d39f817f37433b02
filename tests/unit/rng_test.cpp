#include "core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "unit/digest.h"

namespace skein {
namespace {

constexpr int kDraws = 400000;

std::vector<double> draws(const std::function<double()>& draw) {
  std::vector<double> values(kDraws);
  for (double& value : values) value = draw();
  return values;
}

double mean_power(const std::vector<double>& values, int power) {
  double sum = 0;
  for (const double value : values) sum += std::pow(value, power);
  return sum / kDraws;
}

double share_above(const std::vector<double>& values, double bound) {
  int above = 0;
  for (const double value : values) above += value > bound;
  return static_cast<double>(above) / kDraws;
}

// Five standard errors of a mean of kDraws values with this variance.
double tolerance(double variance) { return 5 * std::sqrt(variance / kDraws); }

TEST(RngNormal, HasTheMomentsOfTheUnitGaussian) {
  Rng rng(11);
  const auto values = draws([&] { return rng.normal(); });
  EXPECT_NEAR(mean_power(values, 1), 0, tolerance(1));
  EXPECT_NEAR(mean_power(values, 2), 1, tolerance(2));
  EXPECT_NEAR(mean_power(values, 3), 0, tolerance(15));
  EXPECT_NEAR(mean_power(values, 4), 3, tolerance(96));
}

TEST(RngNormal, HasBothTails) {
  Rng rng(12);
  auto values = draws([&] { return rng.normal(); });
  for (const double sign : {1.0, -1.0}) {
    for (const double bound : {0.5, 1.0, 2.0, 3.0, 4.0}) {
      const double expected = 0.5 * std::erfc(bound / std::sqrt(2.0));
      EXPECT_NEAR(share_above(values, bound), expected, tolerance(expected)) << sign * bound;
    }
    for (double& value : values) value = -value;
  }
}

TEST(RngNormal, SuccessiveValuesAreUncorrelated) {
  Rng rng(13);
  double previous = rng.normal(), products = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = rng.normal();
    products += value * previous;
    squares += (value * value - 1) * (previous * previous - 1);
    previous = value;
  }
  EXPECT_NEAR(products / kDraws, 0, tolerance(1));
  EXPECT_NEAR(squares / kDraws, 0, tolerance(4));
}

TEST(RngNormal, KeepsNothingBetweenCalls) {
  Rng fresh(14);
  fresh.normal();
  Rng copy = fresh;
  const std::uint64_t next = copy();
  EXPECT_EQ(fresh(), next);
  Rng raw(14);
  int used = 0;
  while (raw() != next) ASSERT_LT(++used, 100);
  EXPECT_EQ(used % 2, 0) << "a value takes pairs of numbers, and no pair is left over";
}

TEST(RngExponential, HasTheMomentsAndTheTailOfItsRate) {
  for (const double rate : {0.25, 1.0, 40.0}) {
    Rng rng(15);
    const auto values = draws([&] { return rng.exponential(rate) * rate; });
    EXPECT_NEAR(mean_power(values, 1), 1, tolerance(1)) << rate;
    EXPECT_NEAR(mean_power(values, 2), 2, tolerance(20)) << rate;
    for (const double bound : {0.1, 1.0, 3.0, 8.0}) {
      EXPECT_NEAR(share_above(values, bound), std::exp(-bound), tolerance(std::exp(-bound)));
    }
    EXPECT_EQ(share_above(values, -1e-300), 1) << "never negative";
  }
}

TEST(Rng, DistributionsHaveTheSameBitsEverywhere) {
  Rng rng(16);
  Digest normals, exponentials;
  for (int i = 0; i < 100000; ++i) {
    normals.add(rng.normal());
    exponentials.add(rng.exponential(3));
  }
  EXPECT_EQ(normals.value(), 18046541942598007051u);
  EXPECT_EQ(exponentials.value(), 8348995566798623203u);
}

}  // namespace
}  // namespace skein

#include "plan/gaussian_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/rng.h"

namespace skein {
namespace {

TEST(GaussianProcess, NormalCdfIsThatOfTheCLibrary) {
  for (int i = -10'000; i <= 10'000; ++i) {
    const double z = i / 1000.0;
    ASSERT_NEAR(normal_cdf(z), 0.5 * std::erfc(-z / std::sqrt(2.0)), 1e-14) << z;
  }
}

TEST(GaussianProcess, ExpectedImprovementIsTheMeanOverDraws) {
  Rng rng(5);
  const Belief belief{1.0, 0.5};
  for (const double least : {0.2, 1.0, 1.7}) {
    double sum = 0;
    constexpr int kDraws = 200'000;
    for (int i = 0; i < kDraws; ++i)
      sum += std::max(least - belief.mean - belief.deviation * rng.normal(), 0.0);
    EXPECT_NEAR(expected_improvement(belief, least), sum / kDraws, 0.005) << least;
  }
  EXPECT_EQ(expected_improvement({1, 0}, 1.5), 0.5);
  EXPECT_EQ(expected_improvement({1, 0}, 0.5), 0.0);
}

TEST(GaussianProcess, PassesThroughSmoothSamplesAndIsUnsureElsewhere) {
  std::vector<Sample> samples;
  for (const double x : {0., 1., 2., 3., 4., 5.}) samples.push_back({x, 0.1 * (x - 3) * (x - 3)});
  const auto beliefs = regress(samples, std::vector{3.0, 2.5, 8.0});
  EXPECT_NEAR(beliefs[0].mean, 0.0, 0.005);
  EXPECT_NEAR(beliefs[1].mean, 0.025, 0.01);
  EXPECT_LT(beliefs[0].deviation, 0.005);
  EXPECT_GT(beliefs[2].deviation, 10 * beliefs[1].deviation);
}

TEST(GaussianProcess, AveragesWhatIsOnlyNoise) {
  Rng rng(4);
  std::vector<Sample> samples;
  for (int i = 0; i < 31; ++i) samples.push_back({i * 0.25, 2 + 0.03 * rng.normal()});
  for (const Belief& belief : regress(samples, std::vector{0.0, 2.6, 7.5}))
    EXPECT_NEAR(belief.mean, 2.0, 0.03);
}

}  // namespace
}  // namespace skein

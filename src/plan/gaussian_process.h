// Gaussian-process regression on one number, and what it promises about untried places. The same
// bits on every machine.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace skein {

struct Sample {
  double x = 0;
  double y = 0;
};

// A normal distribution.
struct Belief {
  double mean = 0;
  double deviation = 0;
};

inline constexpr std::size_t kMostSamples = 31;

// What `samples` say about the function, without its noise, at each of `places`. Meant for
// logarithms of times against logarithms of sizes: it expects variation by a factor of 1.02 to 3
// over one to eight units of x, and noise of a few per cent at most. Which of these, the marginal
// likelihood decides. Requires 1 to kMostSamples samples, all finite.
std::vector<Belief> regress(std::span<const Sample> samples, std::span<const double> places);

// By how much a draw from `belief` undercuts `least` on average, where not undercutting counts 0.
double expected_improvement(const Belief& belief, double least);

// The probability that a standard normal deviate is below z, within 1e-14.
double normal_cdf(double z);

}  // namespace skein

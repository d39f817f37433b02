#include "plan/tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/rng.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kStarts[] = {kMiB, 25 * kMiB, 256 * kMiB};
constexpr std::uint64_t kSeeds = 100;

// Seconds of an iteration as a function of the bucket size.
using Curve = std::function<double(std::size_t)>;

double mib(std::size_t bytes) { return static_cast<double>(bytes) / static_cast<double>(kMiB); }

// 0.1 + b / size + c · size: start-up of many buckets against pipelining of few.
Curve bowl(double optimum_mib, double depth) {
  return [=](std::size_t bytes) {
    const double ratio = mib(bytes) / optimum_mib;
    return 0.1 * (1 + depth * (1 / ratio + ratio));
  };
}

// A bowl that changes only where a plan would, twice an octave.
double stairs(std::size_t bytes) {
  const double step = std::exp2(std::floor(2 * std::log2(mib(bytes))) / 2);
  return bowl(12, 0.2)(static_cast<std::size_t>(step * static_cast<double>(kMiB)));
}

// Tensors in the order of backward, sent in buckets of whole tensors while backward goes on.
struct Layers {
  std::vector<double> bytes;
  double backward_s, startup_s, seconds_per_byte;

  std::vector<double> buckets(std::size_t fusion) const {
    std::vector<double> result;
    double filled = 0;
    for (const double each : bytes) {
      filled += each;
      if (filled < static_cast<double>(fusion)) continue;
      result.push_back(filled);
      filled = 0;
    }
    if (filled > 0) result.push_back(filled);
    return result;
  }

  double operator()(std::size_t fusion) const {
    double total = 0, computed = 0, sent_at = 0;
    for (const double each : bytes) total += each;
    for (const double each : buckets(fusion)) {
      computed += backward_s * each / total;
      sent_at = std::max(sent_at, computed) + startup_s + seconds_per_byte * each;
    }
    return 0.5 * backward_s + sent_at;
  }
};

// Like ResNet-50 and BERT-base between 64 workers.
Layers convolutions() {
  Layers layers{{8.2e6}, 0.15, 0.005, 1.7e-9};
  for (const double channels : {512., 512., 512., 256., 256., 256., 256., 256., 256., 128., 128.,
                                128., 128., 64., 64., 64.})
    for (const double kernels : {4., 9., 4.})
      layers.bytes.insert(layers.bytes.end(), {channels * channels * kernels * 4, channels * 4});
  return layers;
}

Layers transformer() {
  Layers layers{{}, 0.2, 0.002, 1.7e-9};
  for (int block = 0; block < 12; ++block)
    layers.bytes.insert(layers.bytes.end(), {9.4e6, 9.4e6, 2.4e6, 2.4e6, 2.4e6, 2.4e6, 9e3});
  layers.bytes.push_back(94e6);
  return layers;
}

double best_of_sweep(const Curve& curve) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= 8 * 64; ++i)
    best = std::min(best, curve(static_cast<std::size_t>(std::exp2(20 + i / 64.0) + 0.5)));
  return best;
}

FusionTuner tune(const Curve& curve, std::size_t start, std::uint64_t seed, double noise = 0) {
  FusionTuner tuner(start, seed);
  Rng rng = Rng(seed).split(1);
  while (!tuner.done()) tuner.observe(curve(tuner.proposal()) * (1 + noise * rng.normal()));
  return tuner;
}

// The fraction of runs, over all starts and seeds, that end within 5 % of the best.
double success(const Curve& curve, double noise) {
  const double enough = 1.05 * best_of_sweep(curve);
  int good = 0, runs = 0;
  for (const std::size_t start : kStarts)
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed, ++runs) {
      const FusionTuner tuner = tune(curve, start, seed, noise);
      EXPECT_LE(tuner.curve().size(), 10u);
      good += curve(tuner.best()) <= enough;
    }
  return static_cast<double>(good) / runs;
}

struct Case {
  std::string name;
  Curve curve;
};

void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

class TunerFinds : public testing::TestWithParam<Case> {};

TEST_P(TunerFinds, TheBestWithoutNoise) { EXPECT_EQ(success(GetParam().curve, 0), 1.0); }

TEST_P(TunerFinds, TheBestUnderNoise) {
  EXPECT_GE(success(GetParam().curve, 0.01), 0.99);
  EXPECT_GE(success(GetParam().curve, 0.02), 0.95);
  EXPECT_GE(success(GetParam().curve, 0.03), 0.90);
}

INSTANTIATE_TEST_SUITE_P(
    Curves, TunerFinds,
    testing::Values(Case{"optimum_at_2", bowl(2, 0.2)}, Case{"optimum_at_16", bowl(16, 0.02)},
                    Case{"steep_optimum_at_16", bowl(16, 1)},
                    Case{"optimum_at_100", bowl(100, 0.2)},
                    Case{"flat", [](std::size_t) { return 0.2; }},
                    Case{"falling", [](std::size_t bytes) { return 0.1 + 0.5 / mib(bytes); }},
                    Case{"rising", [](std::size_t bytes) { return 0.1 + 0.002 * mib(bytes); }},
                    Case{"stairs", stairs}, Case{"convolutions", convolutions()},
                    Case{"transformer", transformer()}),
    [](const auto& info) { return info.param.name; });

TEST(Tuner, TriesTheStartFirstAndNothingTwiceUntilTheTrialsAreUsedUp) {
  std::size_t most = 0;
  for (const std::size_t start : kStarts) {
    FusionTuner tuner(start, 3, FusionTuner::kMostTrials);
    EXPECT_EQ(tuner.proposal(), start);
    EXPECT_EQ(tuner.best(), start);
    for (double seconds = 1; !tuner.done(); seconds *= 0.8) tuner.observe(seconds);
    std::set<std::size_t> sizes;
    for (const auto& [bytes, seconds] : tuner.curve()) {
      EXPECT_TRUE(sizes.insert(bytes).second) << bytes << " twice";
      EXPECT_GE(bytes, FusionTuner::kLeastBytes);
      EXPECT_LE(bytes, FusionTuner::kMostBytes);
    }
    EXPECT_LE(sizes.size(), 15u);
    most = std::max(most, sizes.size());
  }
  EXPECT_EQ(most, 15u) << "while every trial is an improvement there is reason to go on";
}

TEST(Tuner, EndsEarlyWhenNothingIsToBeGained) {
  const FusionTuner tuner = tune([](std::size_t) { return 3.0; }, FusionTuner::kStartBytes, 0);
  EXPECT_EQ(tuner.curve().size(), 4u);
}

TEST(Tuner, WhenDoneProposesTheBest) {
  FusionTuner tuner(8 * kMiB, 0, 1);
  tuner.observe(0.5);
  EXPECT_TRUE(tuner.done());
  EXPECT_EQ(tuner.proposal(), 8 * kMiB);
  EXPECT_EQ(tuner.curve(), (std::vector<FusionTuner::Trial>{{8 * kMiB, 0.5}}));
}

TEST(Tuner, UnitsOfTimeDoNotMatter) {
  const auto sizes = [](double unit) {
    std::vector<std::size_t> result;
    const Curve curve = bowl(7, 0.3);
    const FusionTuner tuner =
        tune([&](std::size_t bytes) { return unit * curve(bytes); }, 25 * kMiB, 0);
    for (const auto& trial : tuner.curve()) result.push_back(trial.bytes);
    return result;
  };
  EXPECT_EQ(sizes(1), sizes(1024));
  EXPECT_EQ(sizes(1), sizes(1.0 / 1024));
}

TEST(Tuner, ProposesTheSameSizesOnEveryMachine) {
  const auto sizes_kib = [](std::uint64_t seed) {
    std::vector<std::size_t> result;
    const FusionTuner tuner = tune(bowl(5, 0.1), 25 * kMiB, seed, 0.02);
    for (const auto& trial : tuner.curve()) result.push_back(trial.bytes / 1024);
    return result;
  };
  EXPECT_EQ(sizes_kib(1), (std::vector<std::size_t>{25600, 4096, 65536, 8192, 1024, 5312}));
  EXPECT_EQ(sizes_kib(2), (std::vector<std::size_t>{25600, 4096, 65536, 6889, 1024, 5087}));
}

// Tunes as one would who looks at the buckets before trying them.
FusionTuner tune_plans(const Layers& layers, int& skipped) {
  FusionTuner tuner;
  while (!tuner.done()) {
    const auto buckets = layers.buckets(tuner.proposal());
    const auto same = std::ranges::find_if(
        tuner.curve(), [&](const auto& trial) { return layers.buckets(trial.bytes) == buckets; });
    if (same == tuner.curve().end()) {
      tuner.observe(layers(tuner.proposal()));
    } else {
      tuner.observe_same(same->bytes);
      ++skipped;
    }
  }
  return tuner;
}

TEST(Tuner, DoesNotTrySizesWithTheSameBuckets) {
  int skipped = 0;
  const FusionTuner tiny = tune_plans({{4e5, 2e5}, 0.01, 0.001, 1e-9}, skipped);
  EXPECT_EQ(tiny.curve().size(), 1u);
  EXPECT_LE(skipped, 4) << "the ends and what lies between";

  const Layers four{{30e6, 2e6, 9e6, 2e6}, 0.05, 0.001, 2e-9};
  skipped = 0;
  const FusionTuner tuner = tune_plans(four, skipped);
  EXPECT_LE(four(tuner.best()), 1.001 * best_of_sweep(four));
  std::set<std::vector<double>> plans;
  for (const auto& trial : tuner.curve())
    EXPECT_TRUE(plans.insert(four.buckets(trial.bytes)).second) << trial.bytes;
}

TEST(Tuner, NeverProposesBetweenTwoSizesThatAreTheSame) {
  FusionTuner tuner(FusionTuner::kStartBytes, 0, 15);
  tuner.observe(1.0);
  const std::size_t other = tuner.proposal();
  tuner.observe_same(25 * kMiB);
  Rng rng(1);
  while (!tuner.done()) {
    EXPECT_FALSE(tuner.proposal() >= other && tuner.proposal() <= 25 * kMiB) << tuner.proposal();
    tuner.observe(rng.uniform(2, 3));
  }
  EXPECT_EQ(tuner.best(), 25 * kMiB);
}

TEST(Tuner, FindsTheBestBucketsOfRandomModels) {
  Rng rng(11);
  int good = 0;
  for (int model = 0; model < 100; ++model) {
    Layers layers{{}, std::exp2(rng.uniform(-6, 0)), std::exp2(rng.uniform(-13, -7)), 0};
    layers.seconds_per_byte = std::exp2(rng.uniform(-32, -28));
    const double typical_bytes = std::exp2(rng.uniform(14, 24));
    for (auto left = 5 + rng.below(200); left > 0; --left)
      layers.bytes.push_back(typical_bytes * std::exp2(rng.uniform(-4, 2)));
    int skipped = 0;
    const FusionTuner tuner = tune_plans(layers, skipped);
    good += layers(tuner.best()) <= 1.05 * best_of_sweep(layers);
  }
  EXPECT_GE(good, 97);
}

TEST(Tuner, ArgumentsAreChecked) {
  EXPECT_THROW(FusionTuner(kMiB - 1), ConfigError);
  EXPECT_THROW(FusionTuner(256 * kMiB + 1), ConfigError);
  EXPECT_THROW(FusionTuner(kMiB, 0, 0), ConfigError);
  EXPECT_THROW(FusionTuner(kMiB, 0, -1), ConfigError);
  EXPECT_THROW(FusionTuner(kMiB, 0, 16), ConfigError);
  try {
    FusionTuner(kMiB, 0, 16);
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "fusion tuning with 16 trials: expected 1 to 15");
  }
}

TEST(TunerDeathTest, ObservationsAreChecked) {
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_DEATH(FusionTuner().observe(bad), "an iteration of");
  EXPECT_DEATH(FusionTuner().observe_same(kMiB), "1048576 bytes were not tried");
  FusionTuner tuner(kMiB, 0, 1);
  tuner.observe(1);
  EXPECT_DEATH(tuner.observe(1), "after the last trial");
  EXPECT_DEATH(tuner.observe_same(kMiB), "after the last trial");
}

}  // namespace
}  // namespace skein

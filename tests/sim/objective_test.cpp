#include "sim/objectives/objectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/rng.h"
#include "sim/objectives/kinds.h"
#include "skein/error.h"
#include "unit/digest.h"

namespace skein::sim {
namespace {

ObjectiveOptions options_of(const std::string& name, int workers = 1, std::uint64_t seed = 1) {
  ObjectiveOptions options;
  options.name = name;
  options.workers = workers;
  options.seed = seed;
  return options;
}

ObjectiveOptions noiseless_quadratic(int dimension, double condition) {
  ObjectiveOptions options = options_of("quadratic");
  options.dimension = dimension;
  options.condition = condition;
  options.noise = 0;
  return options;
}

struct Step {
  double loss;
  std::vector<float> gradient;
};

Step gradient_of(Replica& replica, std::int64_t samples) {
  const Span gradients = replica.arena().gradients();
  std::fill(gradients.host().begin(), gradients.host().end(), 0.0f);
  replica.gradient(samples);
  return {replica.loss(), {gradients.host().begin(), gradients.host().end()}};
}

void descend(Replica& replica, std::int64_t samples, float rate, int steps) {
  const Span x = replica.arena().parameters();
  for (int step = 0; step < steps; ++step) {
    const auto gradient = gradient_of(replica, samples).gradient;
    for (std::size_t i = 0; i < x.count; ++i) x.host()[i] -= rate * gradient[i];
  }
}

void set_random(Span x, const Arena& arena, double scale, std::uint64_t seed) {
  Rng rng(seed);
  for (const Slot& slot : arena.slots()) {
    for (float& value : x.at(slot.range).host()) value = static_cast<float>(scale * rng.normal());
  }
}

// The mean loss of the first `samples` samples of a worker at `x` with x[i] moved by `by`.
double loss_near(Objective& objective, int rank, Span x, std::size_t i, float by,
                 std::int64_t samples) {
  const auto replica = objective.replica(rank);
  const Span own = replica->arena().parameters();
  std::copy(x.host().begin(), x.host().end(), own.host().begin());
  own.host()[i] += by;
  replica->gradient(samples);
  return replica->loss();
}

// Compares some elements of a worker's first gradient with central differences of its loss.
void expect_gradient_is_slope(Objective& objective, int rank, std::int64_t samples) {
  constexpr float h = 0x1p-8f;
  const auto replica = objective.replica(rank);
  const Arena& arena = replica->arena();
  const Span x = arena.parameters();
  set_random(x, arena, 0.3, 77);
  // Rounded to a grid on which x ± h is exact.
  for (float& value : x.host()) value = std::round(value * 0x1p12f) * 0x1p-12f;
  const auto gradient = gradient_of(*replica, samples).gradient;
  for (std::size_t i = 0; i < x.count; i += 5) {
    const double slope = (loss_near(objective, rank, x, i, h, samples) -
                          loss_near(objective, rank, x, i, -h, samples)) /
                         (2.0 * h);
    if (arena.slot_at(i) >= 0) {
      EXPECT_NEAR(gradient[i], slope, 2e-5) << "element " << i;
    } else {
      EXPECT_EQ(gradient[i], 0) << "gap " << i;
    }
  }
}

std::uint64_t digest_of_training(const ObjectiveOptions& options) {
  const auto objective = make_objective(options);
  Digest digest;
  for (int rank = 0; rank < options.workers; ++rank) {
    const auto replica = objective->replica(rank);
    descend(*replica, 16, 0.25f, 20);  // A power of two: a fused multiply-add changes nothing.
    for (const float value : replica->arena().parameters().host()) digest.add(value);
    if (const auto quality = objective->evaluate(replica->arena().parameters())) {
      digest.add(quality->loss);
    }
  }
  return digest.value();
}

TEST(Consensus, WorkersStartApartAndNothingPullsThem) {
  const auto objective = make_objective(options_of("consensus", 2000));
  double sum = 0, squares = 0;
  for (int rank = 0; rank < 2000; ++rank) {
    const auto replica = objective->replica(rank);
    ASSERT_EQ(replica->arena().slots().size(), 1u);
    ASSERT_EQ(replica->arena().slots()[0].range, (Range{0, 8}));
    for (const float x : replica->arena().parameters().host()) {
      sum += x;
      squares += x * x;
    }
    const auto [loss, gradient] = gradient_of(*replica, 4);
    EXPECT_EQ(loss, 0);
    EXPECT_EQ(gradient, std::vector<float>(16));
  }
  EXPECT_NEAR(sum / 16000, 0, 0.04);
  EXPECT_NEAR(squares / 16000, 1, 0.06);
  EXPECT_FALSE(objective->evaluate(objective->replica(0)->arena().parameters()));
}

TEST(Quadratic, HasExactlyTheConditionNumberAskedFor) {
  for (const double condition : {1.0, 3.0, 100.0, 1e7}) {
    for (const int dimension : {2, 3, 64}) {
      const auto spectrum = geometric_spectrum(dimension, condition);
      EXPECT_EQ(spectrum.front(), 1 / condition);
      EXPECT_EQ(spectrum.back(), 1);
      for (std::size_t i = 2; i < spectrum.size(); ++i) {
        const double ratio = spectrum[i] / spectrum[i - 1];
        EXPECT_NEAR(ratio * spectrum[0] / spectrum[1], 1, 1e-14);
      }
    }
  }
  EXPECT_EQ(geometric_spectrum(1, 100), std::vector<double>{1});
}

TEST(Quadratic, CurvesAsItsSpectrumSays) {
  const auto objective = make_objective(noiseless_quadratic(5, 16));
  const auto replica = objective->replica(0);
  const auto before = gradient_of(*replica, 1).gradient;
  for (float& x : replica->arena().parameters().at({0, 5}).host()) x += 1;
  const auto after = gradient_of(*replica, 1).gradient;
  const std::vector<float> spectrum = {0.0625f, 0.125f, 0.25f, 0.5f, 1.0f};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(after[i] - before[i], spectrum[i], 1e-6);
}

TEST(Quadratic, GradientIsTheSlopeOfTheLoss) {
  ObjectiveOptions options = noiseless_quadratic(64, 100);
  options.workers = 3;
  options.skew = 0.5;
  expect_gradient_is_slope(*make_objective(options), 2, 1);
}

TEST(Quadratic, NoiseHasZeroMeanAndAVarianceOfOneOverSamples) {
  ObjectiveOptions options = noiseless_quadratic(500, 10);
  const auto exact = gradient_of(*make_objective(options)->replica(0), 1).gradient;
  options.noise = 0.4;
  const auto objective = make_objective(options);
  for (const std::int64_t samples : {1, 4, 64}) {
    const auto replica = objective->replica(0);
    double sum = 0, squares = 0;
    for (int draw = 0; draw < 40; ++draw) {
      const auto gradient = gradient_of(*replica, samples).gradient;
      for (std::size_t i = 0; i < 500; ++i) {
        sum += gradient[i] - exact[i];
        squares += std::pow(gradient[i] - exact[i], 2);
      }
    }
    const double variance = 0.16 / static_cast<double>(samples);
    EXPECT_NEAR(sum / 20000, 0, 5 * std::sqrt(variance / 20000)) << samples;
    EXPECT_NEAR(squares / 20000, variance, 0.05 * variance) << samples;
  }
}

TEST(Quadratic, WorkersDrawTheirOwnNoise) {
  const auto objective = make_objective(options_of("quadratic", 2));
  EXPECT_NE(gradient_of(*objective->replica(0), 1).gradient,
            gradient_of(*objective->replica(1), 1).gradient);
}

TEST(Quadratic, SkewedCentresAverageOut) {
  ObjectiveOptions options = noiseless_quadratic(64, 100);
  const auto common = gradient_of(*make_objective(options)->replica(0), 1).gradient;
  options.workers = 7;
  options.skew = 2;
  const auto objective = make_objective(options);
  std::vector<double> mean(64);
  double spread = 0;
  for (int rank = 0; rank < 7; ++rank) {
    const auto gradient = gradient_of(*objective->replica(rank), 1).gradient;
    for (std::size_t i = 0; i < 64; ++i) {
      mean[i] += gradient[i] / 7.0;
      spread += std::pow((gradient[i] - common[i]) / geometric_spectrum(64, 100)[i], 2);
    }
  }
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(mean[i], common[i], 1e-6);
  // Recentring leaves 6/7 of the variance.
  EXPECT_NEAR(spread / (7 * 64), 4 * 6.0 / 7, 0.6);
}

TEST(Quadratic, ALoneWorkerHasNoSkew) {
  ObjectiveOptions options = noiseless_quadratic(64, 100);
  const auto common = gradient_of(*make_objective(options)->replica(0), 1).gradient;
  options.skew = 5;
  EXPECT_EQ(gradient_of(*make_objective(options)->replica(0), 1).gradient, common);
}

TEST(Quadratic, DescentConvergesAtTheRateOfItsSpectrum) {
  constexpr float rate = 0.5f;
  const auto objective = make_objective(noiseless_quadratic(32, 50));
  const auto replica = objective->replica(0);
  const auto start = gradient_of(*replica, 1).gradient;
  descend(*replica, 1, rate, 100);
  const auto spectrum = geometric_spectrum(32, 50);
  double expected = 0;
  for (std::size_t i = 0; i < spectrum.size(); ++i) {
    const double distance = start[i] / spectrum[i] * std::pow(1 - rate * spectrum[i], 100);
    expected += 0.5 * spectrum[i] * distance * distance;
  }
  EXPECT_NEAR(objective->evaluate(replica->arena().parameters())->loss, expected, 1e-4 * expected);
}

TEST(Quadratic, TheSmallestCurvatureIsTheLastToConverge) {
  const auto objective = make_objective(noiseless_quadratic(4, 50));
  const auto replica = objective->replica(0);
  const auto loss = [&] { return objective->evaluate(replica->arena().parameters())->loss; };
  descend(*replica, 1, 1.0f, 150);
  const double early = loss();
  descend(*replica, 1, 1.0f, 20);
  EXPECT_NEAR(loss() / early, std::pow(1 - 1.0 / 50, 2 * 20), 1e-3);
}

TEST(Quadratic, ReportsTheExcessOverTheMinimum) {
  const auto objective = make_objective(noiseless_quadratic(16, 4));
  const auto replica = objective->replica(0);
  EXPECT_EQ(objective->evaluate(replica->arena().parameters())->loss,
            gradient_of(*replica, 1).loss);
  descend(*replica, 1, 1.0f, 300);
  const auto quality = objective->evaluate(replica->arena().parameters());
  EXPECT_GE(quality->loss, 0);
  EXPECT_LT(quality->loss, 1e-12);
  EXPECT_FALSE(quality->accuracy);
}

TEST(Logistic, LaysOutWeightAndBiasAndStartsFromZero) {
  const auto objective = make_objective(options_of("logistic", 2));
  const auto replica = objective->replica(1);
  const auto& slots = replica->arena().slots();
  ASSERT_EQ(slots.size(), 2u);
  EXPECT_EQ(slots[0].name, "weight");
  EXPECT_EQ(slots[0].range, (Range{0, 320}));
  EXPECT_EQ(slots[1].name, "bias");
  EXPECT_EQ(slots[1].range, (Range{320, 10}));
  const auto quality = objective->evaluate(replica->arena().parameters());
  EXPECT_NEAR(quality->loss, std::log(10.0), 1e-12);
  EXPECT_NEAR(*quality->accuracy, 0.1, 0.01);
}

TEST(Logistic, GradientIsTheSlopeOfTheLoss) {
  const auto objective = make_objective(options_of("logistic", 3));
  expect_gradient_is_slope(*objective, 0, 1);
  expect_gradient_is_slope(*objective, 2, 50);
}

TEST(Logistic, GradientIsRightWhereTheLayoutHasGaps) {
  ObjectiveOptions options = options_of("logistic");
  options.dimension = 5;
  expect_gradient_is_slope(*make_objective(options), 0, 8);
}

TEST(Logistic, GradientsAreAddedToWhatIsThere) {
  const auto objective = make_objective(options_of("logistic"));
  const auto once = objective->replica(0), onto = objective->replica(0);
  const auto gradient = gradient_of(*once, 8).gradient;
  const Span sum = onto->arena().gradients();
  std::fill(sum.host().begin(), sum.host().begin() + 320, 3.0f);
  onto->gradient(8);
  for (std::size_t i = 0; i < 320; ++i) EXPECT_EQ(sum.host()[i], 3.0f + gradient[i]);
}

TEST(Logistic, ABatchIsTheMeanOfItsSamples) {
  const auto objective = make_objective(options_of("logistic"));
  const auto batch = objective->replica(0), single = objective->replica(0);
  set_random(batch->arena().parameters(), batch->arena(), 0.3, 5);
  set_random(single->arena().parameters(), single->arena(), 0.3, 5);
  const auto [loss, gradient] = gradient_of(*batch, 6);
  double loss_sum = 0;
  std::vector<double> sums(gradient.size());
  for (int sample = 0; sample < 6; ++sample) {
    const auto one = gradient_of(*single, 1);
    loss_sum += one.loss;
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += one.gradient[i];
  }
  EXPECT_NEAR(loss, loss_sum / 6, 1e-12);
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(gradient[i], sums[i] / 6, 1e-6);
}

TEST(Logistic, PenalisesEveryParameter) {
  const auto objective = make_objective(options_of("logistic"));
  const auto replica = objective->replica(0);
  // The same number on all classes changes no probability, so only the penalty is left.
  const auto before = gradient_of(*objective->replica(0), 4);
  const Span x = replica->arena().parameters();
  std::fill(x.host().begin(), x.host().begin() + 330, 2.0f);
  const auto after = gradient_of(*replica, 4);
  EXPECT_NEAR(after.loss - before.loss, 0.5e-4 * 4 * 330, 1e-9);
  for (std::size_t i = 0; i < 330; ++i) {
    EXPECT_NEAR(after.gradient[i] - before.gradient[i], 2e-4, 1e-6);
  }
}

TEST(Logistic, StochasticDescentReachesItsAccuracy) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto objective = make_objective(options_of("logistic", 1, seed));
    const auto replica = objective->replica(0);
    descend(*replica, 32, 0.2f, 600);
    descend(*replica, 128, 0.05f, 200);
    const auto quality = objective->evaluate(replica->arena().parameters());
    EXPECT_GT(*quality->accuracy, 0.85) << "seed " << seed;
    EXPECT_LT(*quality->accuracy, 0.95) << "seed " << seed;
    EXPECT_LT(quality->loss, 0.45) << "seed " << seed;
  }
}

TEST(Logistic, SkewedLabelsGiveWorkersDifferentGradients) {
  const auto distance = [](std::optional<double> dirichlet) {
    ObjectiveOptions options = options_of("logistic", 4);
    options.dirichlet = dirichlet;
    const auto objective = make_objective(options);
    const auto one = gradient_of(*objective->replica(0), 2000).gradient;
    const auto two = gradient_of(*objective->replica(1), 2000).gradient;
    double sum = 0;
    for (std::size_t i = 0; i < one.size(); ++i) sum += std::pow(one[i] - two[i], 2);
    return sum;
  };
  EXPECT_GT(distance(0.1), 20 * distance(std::nullopt));
}

TEST(Objectives, AFreshReplicaRepeatsItsStream) {
  for (const char* name : {"consensus", "quadratic", "logistic"}) {
    const auto objective = make_objective(options_of(name, 2));
    const auto one = objective->replica(1), two = objective->replica(1);
    descend(*one, 3, 0.1f, 5);
    descend(*two, 3, 0.1f, 5);
    const Span x = one->arena().parameters(), y = two->arena().parameters();
    EXPECT_TRUE(std::equal(x.host().begin(), x.host().end(), y.host().begin(), y.host().end()))
        << name;
  }
}

TEST(Objectives, TheGapsOfTheArenaStayZero) {
  for (const char* name : {"consensus", "quadratic", "logistic"}) {
    ObjectiveOptions options = options_of(name);
    options.dimension = 5;
    const auto objective = make_objective(options);
    const auto replica = objective->replica(0);
    descend(*replica, 3, 0.1f, 2);
    const Arena& arena = replica->arena();
    EXPECT_EQ(arena.slot_at(arena.size() - 1), -1) << name;
    for (std::size_t i = 0; i < arena.size(); ++i) {
      if (arena.slot_at(i) >= 0) continue;
      EXPECT_EQ(arena.parameters().host()[i], 0) << name << " " << i;
      EXPECT_EQ(arena.gradients().host()[i], 0) << name << " " << i;
    }
  }
}

TEST(Objectives, TrainingHasTheSameBitsEverywhere) {
  ObjectiveOptions quadratic = options_of("quadratic", 3, 9),
                   logistic = options_of("logistic", 3, 9);
  quadratic.skew = 0.5;
  logistic.dirichlet = 0.5;
  EXPECT_EQ(digest_of_training(options_of("consensus", 3, 9)), 15510410273148562930u);
  EXPECT_EQ(digest_of_training(quadratic), 11087073227268201946u);
  EXPECT_EQ(digest_of_training(logistic), 13011836239143159392u);
  quadratic.seed = logistic.seed = 10;
  EXPECT_NE(digest_of_training(quadratic), 11087073227268201946u);
  EXPECT_NE(digest_of_training(logistic), 13011836239143159392u);
}

std::string error_of(const std::function<void(ObjectiveOptions&)>& change) {
  ObjectiveOptions options = options_of("logistic");
  change(options);
  try {
    make_objective(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Objectives, ErrorsSayWhatIsExpected) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of([](auto& o) { o.name = "cubic"; }),
            "objective is 'cubic': expected consensus, quadratic or logistic");
  EXPECT_EQ(error_of([](auto& o) { o.workers = 0; }), "workers is 0: expected at least 1");
  EXPECT_EQ(error_of([](auto& o) { o.condition = 0.5; }),
            "condition is 0.5: expected a number of at least 1");
  EXPECT_EQ(error_of([](auto& o) { o.noise = -1; }),
            "noise is -1: expected a number of at least 0");
  EXPECT_EQ(error_of([](auto& o) { o.skew = nan; }),
            "skew is nan: expected a number of at least 0");
  EXPECT_EQ(error_of([](auto& o) { o.dirichlet = 0; }),
            "dirichlet is 0: expected a number above 0");
  for (const int dimension : {-1, 1000001}) {
    EXPECT_EQ(error_of([&](auto& o) { o.dimension = dimension; }),
              "dimension is " + std::to_string(dimension) +
                  ": expected 1 to 1000000, or 0 for the objective's own");
  }
  EXPECT_EQ(error_of([](auto& o) { o.dimension = 4097; }),
            "dimension is 4097: the logistic objective expects at most 4096 features");
  EXPECT_EQ(error_of([](auto& o) { o.workers = 8193, o.dirichlet = 1; }),
            "8192 samples for 8193 workers: expected at least one for each");
  EXPECT_EQ(error_of([](auto& o) { o.dimension = 4; }), "no error");
}

TEST(ObjectivesDeathTest, AnImpossibleRankOrBatchAborts) {
  for (const char* name : {"consensus", "quadratic", "logistic"}) {
    const auto objective = make_objective(options_of(name, 2));
    EXPECT_DEATH((void)objective->replica(2), "rank 2 of 2 workers");
    EXPECT_DEATH(objective->replica(0)->gradient(0), "gradient of 0 samples");
  }
}

}  // namespace
}  // namespace skein::sim

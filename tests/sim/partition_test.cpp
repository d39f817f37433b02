#include "sim/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "skein/error.h"
#include "unit/digest.h"

namespace skein::sim {
namespace {

constexpr int kClasses = 10;

std::vector<int> labels_of(int samples) {
  std::vector<int> labels(static_cast<std::size_t>(samples));
  for (int i = 0; i < samples; ++i) labels[static_cast<std::size_t>(i)] = i * 7 % kClasses;
  return labels;
}

std::vector<std::uint32_t> numbers_to(std::uint32_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

// Mean over workers of the total variation between their mix of classes and the even mix: 0 for
// none, 0.9 when every worker has one class of ten.
double label_skew(const std::vector<int>& labels,
                  const std::vector<std::vector<std::uint32_t>>& parts) {
  double total = 0;
  for (const auto& part : parts) {
    std::vector<double> mix(kClasses);
    for (const auto i : part) {
      mix[static_cast<std::size_t>(labels[i])] += 1.0 / static_cast<double>(part.size());
    }
    for (const double share : mix) total += 0.5 * std::abs(share - 1.0 / kClasses);
  }
  return total / static_cast<double>(parts.size());
}

TEST(Dirichlet, HasTheMeanAndTheVarianceOfItsAlpha) {
  constexpr int draws = 20000, count = 4;
  for (const double alpha : {0.1, 0.7, 1.0, 5.0, 100.0}) {
    Rng rng(21);
    const double mean = 1.0 / count, variance = mean * (1 - mean) / (count * alpha + 1);
    double sum = 0, squares = 0;
    for (int i = 0; i < draws; ++i) {
      const auto shares = dirichlet(rng, alpha, count);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-14);
      sum += shares[1];
      squares += (shares[1] - mean) * (shares[1] - mean);
    }
    EXPECT_NEAR(sum / draws, mean, 5 * std::sqrt(variance / draws)) << alpha;
    EXPECT_NEAR(squares / draws, variance, 0.06 * variance) << alpha;
  }
}

TEST(Dirichlet, StaysFiniteAtEveryAlpha) {
  using Limits = std::numeric_limits<double>;
  for (const double alpha : {Limits::denorm_min(), 1e-300, 1e-3, 1e10, 1e20, 1e33, Limits::max()}) {
    Rng rng(22);
    double sum = 0;
    for (const double share : dirichlet(rng, alpha, 7)) {
      EXPECT_GE(share, 0) << alpha;
      if (alpha > 1e9) {
        EXPECT_NEAR(share, 1.0 / 7, 1e-4) << alpha;
      }
      sum += share;
    }
    EXPECT_NEAR(sum, 1, 1e-14) << alpha;
  }
}

TEST(Partition, WithoutSkewEveryWorkerHoldsAllSamples) {
  const auto labels = labels_of(100);
  for (const std::optional<double> alpha :
       {std::optional<double>(), std::optional(std::numeric_limits<double>::infinity())}) {
    const auto parts = partition(labels, kClasses, 3, alpha, 1);
    ASSERT_EQ(parts.size(), 3u);
    for (const auto& part : parts) EXPECT_EQ(part, numbers_to(100));
  }
}

TEST(Partition, GivesEachSampleToExactlyOneWorkerAndNoneToNobody) {
  for (const int workers : {1, 2, 8, 64, 999, 1000}) {
    for (const double alpha : {0.001, 0.1, 1.0, 100.0}) {
      std::vector<std::uint32_t> all;
      for (const auto& part : partition(labels_of(1000), kClasses, workers, alpha, 5)) {
        EXPECT_FALSE(part.empty()) << workers << " workers, alpha " << alpha;
        all.insert(all.end(), part.begin(), part.end());
      }
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all, numbers_to(1000)) << workers << " workers, alpha " << alpha;
    }
  }
}

TEST(Partition, ASmallerAlphaSkewsLabelsMore) {
  const auto labels = labels_of(10000);
  const auto skew = [&](double alpha) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      sum += label_skew(labels, partition(labels, kClasses, 8, alpha, seed)) / 5;
    }
    return sum;
  };
  EXPECT_GT(skew(0.1), 0.5);
  EXPECT_GT(skew(1), 0.2);
  EXPECT_LT(skew(1), 0.5);
  EXPECT_LT(skew(100), 0.07);
  EXPECT_LT(skew(1e6), 0.01);
}

TEST(Partition, RejectsWhatCannotBeShared) {
  EXPECT_THROW(partition(labels_of(7), kClasses, 8, 1.0, 1), ConfigError);
  EXPECT_THROW(partition({}, kClasses, 1, std::nullopt, 1), ConfigError);
  for (const double alpha : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THROW(partition(labels_of(100), kClasses, 2, alpha, 1), ConfigError) << alpha;
  }
  try {
    partition(labels_of(7), kClasses, 8, 1.0, 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "7 samples for 8 workers: expected at least one for each");
  }
}

TEST(Partition, IsTheSameForASeedEverywhere) {
  const auto labels = labels_of(2000);
  Digest digest;
  for (const auto& part : partition(labels, kClasses, 16, 0.3, 7)) {
    digest.add(std::uint64_t{part.size()});
    for (const auto number : part) digest.add(std::uint64_t{number});
  }
  EXPECT_EQ(digest.value(), 13473522068780382823u);
  EXPECT_NE(partition(labels, kClasses, 16, 0.3, 7), partition(labels, kClasses, 16, 0.3, 8));
}

TEST(SampleStream, GivesEverySampleOncePerPassWhateverTheBatches) {
  const std::vector<std::uint32_t> held = {3, 5, 8, 13, 21, 34, 55};
  for (const std::int64_t batch : {1, 3, 7, 10, 21}) {
    SampleStream stream(held, Rng(1));
    std::vector<std::uint32_t> seen;
    while (seen.size() < 10 * held.size()) {
      const auto numbers = stream.next(batch);
      ASSERT_EQ(numbers.size(), static_cast<std::size_t>(batch));
      seen.insert(seen.end(), numbers.begin(), numbers.end());
    }
    for (std::size_t pass = 0; pass < 10; ++pass) {
      const auto begin = seen.begin() + static_cast<std::ptrdiff_t>(pass * held.size());
      EXPECT_EQ(std::multiset(begin, begin + 7), std::multiset(held.begin(), held.end())) << pass;
    }
  }
}

TEST(SampleStream, EachPassAndEachWorkerHasItsOwnOrder) {
  SampleStream one(numbers_to(50), Rng(1).split(0)), two(numbers_to(50), Rng(1).split(1));
  const auto pass = [](SampleStream& stream) {
    const auto numbers = stream.next(50);
    return std::vector(numbers.begin(), numbers.end());
  };
  const auto first = pass(one);
  EXPECT_NE(first, numbers_to(50));
  EXPECT_NE(first, pass(one));
  EXPECT_NE(first, pass(two));
}

TEST(SampleStream, HowItIsCutIntoBatchesDoesNotChangeIt) {
  SampleStream whole(numbers_to(11), Rng(4)), pieces(numbers_to(11), Rng(4));
  const auto expected = whole.next(60);
  std::vector<std::uint32_t> got;
  for (const std::int64_t count : {0, 5, 6, 1, 25, 23}) {
    const auto numbers = pieces.next(count);
    got.insert(got.end(), numbers.begin(), numbers.end());
  }
  EXPECT_EQ(got, std::vector(expected.begin(), expected.end()));
}

TEST(SampleStream, IsTheSameForASeedEverywhere) {
  SampleStream stream(numbers_to(1000), Rng(6));
  Digest digest;
  for (const auto number : stream.next(5000)) digest.add(std::uint64_t{number});
  EXPECT_EQ(digest.value(), 11277498000355368973u);
}

}  // namespace
}  // namespace skein::sim

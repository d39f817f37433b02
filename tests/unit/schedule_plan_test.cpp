#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/rng.h"
#include "plan/bucket_plan.h"
#include "plan/shares.h"
#include "skein/error.h"

namespace skein {
namespace {

Arena arena_of(const std::vector<std::size_t>& counts) {
  std::vector<Arena::Parameter> parameters;
  for (const std::size_t count : counts)
    parameters.push_back({fmt::format("p{}", parameters.size()), count});
  return Arena(parameters, allocate_on_heap);
}

TEST(BucketPlan, CoversTheArenaFromItsEndInWholeParameters) {
  Rng rng(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::size_t> counts;
    for (std::uint64_t i = 0; i < 1 + rng.below(40); ++i) counts.push_back(1 + rng.below(100000));
    const Arena arena = arena_of(counts);
    const Fusion fusion{1 + rng.below(400000), 1 + rng.below(1000000)};
    const BucketPlan plan(arena, fusion);
    std::size_t end = arena.size();
    int slots = 0;
    for (int bucket = 0; bucket < plan.count(); ++bucket) {
      EXPECT_EQ(plan.range(bucket).end(), end);
      end = plan.range(bucket).offset;
      slots += plan.slots_in(bucket);
      if (bucket + 1 < plan.count()) {
        EXPECT_GE(plan.range(bucket).count * 4, bucket == 0 ? fusion.first_bytes : fusion.bytes);
      }
    }
    EXPECT_EQ(end, 0u);
    EXPECT_EQ(slots, static_cast<int>(counts.size()));
    for (int slot = 0; slot < static_cast<int>(counts.size()); ++slot) {
      const Range range = arena.slots()[static_cast<std::size_t>(slot)].range;
      const Range bucket = plan.range(plan.bucket_of(slot));
      EXPECT_TRUE(range.offset >= bucket.offset && range.end() <= bucket.end());
    }
  }
}

TEST(BucketPlan, NoFusionIsOneBucketPerParameter) {
  const Arena arena = arena_of({10, 20, 30});
  EXPECT_EQ(BucketPlan(arena, parse_fusion("none")).count(), 3);
  EXPECT_EQ(BucketPlan(arena, parse_fusion("auto")).count(), 1);
}

TEST(BucketPlan, FusionIsReadStrictly) {
  EXPECT_EQ(parse_fusion("2MB").bytes, 2'000'000u);
  EXPECT_EQ(parse_fusion("64KB").first_bytes, 64'000u);
  for (const char* bad : {"", "0", "big", "-1MB"})
    EXPECT_THROW(parse_fusion(bad), ConfigError) << bad;
}

TEST(Shares, EvenOnesDifferByOneAtMost) {
  EXPECT_EQ(even_shares(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(even_shares(2, 4), (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(even_shares(0, 2), (std::vector<std::int64_t>{0, 0}));
}

TEST(Shares, LieOneAfterTheOther) {
  EXPECT_EQ(share_of({3, 3, 2, 2}, 0), (Share{0, 3}));
  EXPECT_EQ(share_of({3, 3, 2, 2}, 3), (Share{8, 2}));
  EXPECT_EQ(share_of({1, 0, 0}, 2), (Share{1, 0}));
}

TEST(Shares, ProportionalOnesFollowSpeedAndLoseNothing) {
  EXPECT_EQ(proportional_shares(128, {1, 1, 2, 4}), (std::vector<std::int64_t>{16, 16, 32, 64}));
  EXPECT_EQ(proportional_shares(4, {1, 1000, 1, 1}), (std::vector<std::int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(proportional_shares(3, {1, 1, 1, 1}), (std::vector<std::int64_t>{1, 1, 1, 0}));
  Rng rng(2);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> speeds;
    for (std::uint64_t i = 0; i < 1 + rng.below(16); ++i) speeds.push_back(rng.uniform(0.01, 10));
    const auto samples = static_cast<std::int64_t>(rng.below(500));
    const auto shares = proportional_shares(samples, speeds);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), samples);
    const double total = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    for (std::size_t i = 0; i < speeds.size(); ++i) {
      EXPECT_GE(shares[i], samples >= std::ssize(speeds) ? 1 : 0);
      const double exact = static_cast<double>(samples) * speeds[i] / total;
      EXPECT_LE(static_cast<double>(shares[i]), exact + 2);
    }
  }
}

}  // namespace
}  // namespace skein

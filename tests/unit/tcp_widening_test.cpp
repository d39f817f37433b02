// How many streams are found to be worth having on networks of different kinds.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/rng.h"
#include "fabric/tcp/widening.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

// The count that is used most after `time` on a network that takes rate(streams) bytes a second.
std::size_t found(Widening& widening, Duration time,
                  const std::function<double(std::size_t)>& rate) {
  std::array<int, 17> used{};
  for (Duration passed{0}; passed < time; passed += 250ms) {
    const double bytes = rate(widening.count()) * 0.25;
    widening.pass(static_cast<std::uint64_t>(bytes), 250ms, widening.count());
    if (passed > time / 2) ++used[widening.count()];
  }
  return static_cast<std::size_t>(std::max_element(used.begin(), used.end()) - used.begin());
}

TEST(Widening, HasAsManyStreamsAsTheNetworkNeedsToBeFull) {
  for (const std::size_t enough : {1, 2, 3}) {
    Widening widening(1, 4);
    const auto rate = [&](std::size_t n) {
      return 25e6 * static_cast<double>(std::min(n, enough));
    };
    EXPECT_EQ(found(widening, 100s, rate), enough);
  }
}

TEST(Widening, NeverHasMoreThanTheMostNorFewerThanTheLeast) {
  Widening widening(2, 3);
  for (int i = 0; i < 2000; ++i) {
    widening.pass(25'000'000 * widening.count(), 250ms, widening.count());
    EXPECT_LE(widening.count(), 3u);
  }
  EXPECT_EQ(widening.count(), 3u);
  for (int i = 0; i < 2000; ++i) {
    widening.pass(25'000'000 / widening.count(), 250ms, widening.count());
    EXPECT_GE(widening.count(), 2u);
  }
}

TEST(Widening, GoesBackWhenTheNetworkChanges) {
  Widening widening(1, 4);
  EXPECT_EQ(found(widening, 100s, [](std::size_t n) { return 25e6 * static_cast<double>(n); }), 4u);
  EXPECT_EQ(found(widening, 2000s, [](std::size_t) { return 40e6; }), 1u);
}

TEST(Widening, TriesNothingOnSlowNetworksAndWhereNothingWaits) {
  Widening widening(1, 4);
  for (int i = 0; i < 1000; ++i) {
    widening.pass(200'000, 250ms, 1);
    EXPECT_EQ(widening.count(), 1u);
    widening.pass(100'000'000, Duration(0), 1);
    EXPECT_EQ(widening.count(), 1u);
  }
}

TEST(Widening, JudgesAStreamOnlyOnceItIsThere) {
  Widening widening(1, 4);
  for (int i = 0; i < 4; ++i) widening.pass(25'000'000, 250ms, 1);
  ASSERT_EQ(widening.count(), 2u);
  for (int i = 0; i < 100; ++i) widening.pass(1'000'000, 250ms, 1);
  EXPECT_EQ(widening.count(), 2u);
}

// Rates that swing by a fifth: mostly one stream all the same.
TEST(Widening, IsNotCarriedAwayByNoise) {
  Rng rng(3);
  Widening widening(1, 4);
  const auto rate = [&](std::size_t) { return 40e6 * (0.9 + 0.2 * rng.uniform()); };
  EXPECT_EQ(found(widening, 2000s, rate), 1u);
}

}  // namespace
}  // namespace skein::tcp

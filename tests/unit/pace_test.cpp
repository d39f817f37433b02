#include "emulate/pace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST(PaceTest, IsTheInverseOfTheSpeedTimesTheFaults) {
  Pace pace(4, 0, {}, Rng(1));
  EXPECT_EQ(pace.next_factor(Time()), 0.25);
  pace.fault_factor = 10;
  EXPECT_EQ(pace.next_factor(Time() + 1h), 2.5);
}

TEST(PaceTest, JitterStaysInItsBoundsAroundOne) {
  Pace pace(2, 0.2, {}, Rng(1));
  double sum = 0, least = 1e9, most = 0;
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i) {
    const double factor = 2 * pace.next_factor(Time());
    sum += factor;
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  EXPECT_GE(least, 0.8);
  EXPECT_LT(most, 1.2);
  EXPECT_LT(least, 0.801);
  EXPECT_GT(most, 1.199);
  EXPECT_NEAR(sum / draws, 1, 0.003);  // 3.7 standard errors
}

TEST(PaceTest, IsFixedByItsSeed) {
  const auto draw = [](std::uint64_t seed) {
    return Pace(1, 0.2, {}, Rng(seed)).next_factor(Time());
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(PaceTest, SlowdownsTakeTheirPartOfALongTime) {
  Pace pace(1, 0, {.every = 8s, .lasting = 2s, .factor = 3}, Rng(1));
  int slow = 0;
  constexpr int looks = 200000;  // of 100 ms: about 2000 slow periods
  for (int i = 0; i < looks; ++i) {
    const double factor = pace.next_factor(Time() + i * 100ms);
    ASSERT_TRUE(factor == 1 || factor == 3);
    slow += factor == 3;
  }
  EXPECT_NEAR(static_cast<double>(slow) / looks, 0.2, 0.02);  // about 4 standard errors
}

TEST(PaceTest, SlowPeriodsThatNobodyLookedAtArePassedOver) {
  const Slowdowns slowdowns{.every = 8s, .lasting = 2s, .factor = 3};
  Pace often(1, 0, slowdowns, Rng(5)), once(1, 0, slowdowns, Rng(5));
  double last = 0;
  for (int i = 0; i <= 1000; ++i) last = often.next_factor(Time() + i * 1s);
  EXPECT_EQ(once.next_factor(Time() + 1000s), last);
}

TEST(ParseSlowdowns, HasThreeKeys) {
  const Slowdowns slowdowns = parse_slowdowns("every=10s,for=2s,factor=4");
  EXPECT_EQ(slowdowns.every, 10s);
  EXPECT_EQ(slowdowns.lasting, 2s);
  EXPECT_EQ(slowdowns.factor, 4);
  EXPECT_EQ(parse_slowdowns("every=10s,for=2s").factor, 3);
}

TEST(ParseSlowdowns, ErrorsNameTheOption) {
  for (const char* text : {"", "every=10s", "for=2s", "every=0s,for=2s", "every=1s,for=0s",
                           "every=1s,for=2s,factor=0.5", "every=1,for=2s", "every=1s,for=2s,x=1"}) {
    try {
      parse_slowdowns(text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("--slowdowns"), 0u) << error.what();
    }
  }
}

}  // namespace
}  // namespace skein

// When messages pass an emulated link.
#include <gtest/gtest.h>

#include "emulate/link.h"

namespace skein::shm {
namespace {

using namespace std::chrono_literals;

constexpr Time kStart{};

TEST(LinkEmulation, IsOffUnlessItLimitsSomething) {
  EXPECT_FALSE(LinkEmulation{}.on());
  EXPECT_TRUE((LinkEmulation{1e6, 0ns}.on()));
  EXPECT_TRUE((LinkEmulation{0, 1ms}.on()));
}

TEST(LinkEmulation, AMessageLastsItsBytesOverTheBandwidth) {
  EXPECT_EQ((LinkEmulation{125e6, 0ns}.transfer(125'000)), 1ms);
  EXPECT_EQ((LinkEmulation{125e6, 5ms}.transfer(0)), 0ns);
  EXPECT_EQ((LinkEmulation{0, 5ms}.transfer(125'000)), 0ns);
}

TEST(LinkEmulation, MessagesPassOneAfterTheOther) {
  const LinkEmulation link{1e6, 1ms};
  LinkLane lane(link);
  EXPECT_EQ(lane.pass(kStart, 1000), kStart);             // lasts 1 ms
  EXPECT_EQ(lane.pass(kStart, 3000), kStart + 1ms);       // waits for it
  EXPECT_EQ(lane.pass(kStart + 2ms, 500), kStart + 4ms);  // and this one for both
  EXPECT_EQ(lane.free_at(), kStart + 4500us);
}

TEST(LinkEmulation, AnIdleLaneIsNotBehind) {
  const LinkEmulation link{1e6, 0ns};
  LinkLane lane(link);
  lane.pass(kStart, 1000);
  EXPECT_EQ(lane.pass(kStart + 10ms, 1000), kStart + 10ms);
  EXPECT_EQ(lane.free_at(), kStart + 11ms);
}

TEST(LinkEmulation, WithoutABandwidthOnlyTheDelayCounts) {
  const LinkEmulation link{0, 7ms};
  LinkLane lane(link);
  EXPECT_EQ(lane.pass(kStart, 1 << 20), kStart);
  EXPECT_EQ(lane.pass(kStart, 1 << 20), kStart);
}

}  // namespace
}  // namespace skein::shm

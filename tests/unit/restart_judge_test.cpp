#include "launch/restart_judge.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

TEST(RestartJudge, AllowsAsManyAsItWasTold) {
  RestartJudge judge(3, 0);
  for (int restart = 1; restart <= 3; ++restart) {
    EXPECT_EQ(judge.why_not(100 * restart, true), "");
    EXPECT_EQ(judge.restarts(), restart);
  }
  EXPECT_EQ(judge.why_not(1000, true), "3 of 3 were made");
  EXPECT_EQ(judge.restarts(), 3);
}

TEST(RestartJudge, EndsARunThatFailsTwiceWithoutHavingGainedAnything) {
  RestartJudge at_once(10, 500);
  EXPECT_EQ(at_once.why_not(500, false), "");
  EXPECT_NE(at_once.why_not(500, false), "");

  RestartJudge at_one_place(10, 0);  // which an earlier try had reached
  EXPECT_EQ(at_one_place.why_not(800, true), "");
  EXPECT_EQ(at_one_place.why_not(800, false), "");
  EXPECT_TRUE(at_one_place.stuck());
  EXPECT_NE(at_one_place.why_not(800, false), "");
}

TEST(RestartJudge, GoesOnWhileSomethingIsGained) {
  RestartJudge judge(100, 0);
  for (int round = 1; round <= 20; ++round) {
    EXPECT_EQ(judge.why_not(10 * round, false), "") << "more samples than ever";
    EXPECT_EQ(judge.why_not(0, false), "") << "once is no pattern";
    EXPECT_EQ(judge.why_not(0, true), "") << "a checkpoint";
  }
}

}  // namespace
}  // namespace skein

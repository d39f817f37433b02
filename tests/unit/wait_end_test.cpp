// When a wait for a peer ends, and whose time counts.
#include "fabric/wait_end.h"

#include <gtest/gtest.h>

namespace skein {
namespace {

using namespace std::chrono_literals;

Time at(Duration time) { return Time(time); }

// Looks every 50 ms from `from` to `to`, as a worker that runs does.
Time look(WaitEnd& wait, Duration from, Duration to, Duration sign) {
  Time end{};
  for (Duration now = from; now <= to; now += 50ms) end = wait.at(at(now), at(sign));
  return end;
}

TEST(WaitEnd, ComesASilenceAfterTheBeginningOrTheLastSign) {
  WaitEnd wait(Limit::silence(3s), at(10s));
  EXPECT_EQ(look(wait, 10s, 12s, 5s), at(13s));
  EXPECT_EQ(look(wait, 12s, 14s, 11500ms), at(14500ms));
}

TEST(WaitEnd, DoesNotCountTimeInWhichTheWaitingWorkerDidNotRun) {
  WaitEnd wait(Limit::silence(3s), at(0s));
  look(wait, 0s, 1s, 0s);
  // It was stopped for 100 s. Of the silence 2 s are left, but for the longest pause.
  EXPECT_EQ(wait.at(at(101s), at(0s)), at(103s - WaitEnd::kLongestPause));
  EXPECT_EQ(look(wait, 101s, 102s, 0s), at(103s - WaitEnd::kLongestPause));
}

// An answer to a question from before the stop tells of progress before it.
TEST(WaitEnd, DoesNotCountThatTimeWhenAnOldSignArrivesAfterIt) {
  WaitEnd wait(Limit::silence(3s), at(0s));
  look(wait, 0s, 1s, 0s);
  wait.at(at(101s), at(0s));
  EXPECT_EQ(wait.at(at(101s), at(900ms)), at(103900ms - WaitEnd::kLongestPause));
}

TEST(WaitEnd, CountsFromASignThatCameAfterTheWorkerRanAgain) {
  WaitEnd wait(Limit::silence(3s), at(0s));
  look(wait, 0s, 1s, 0s);
  wait.at(at(101s), at(0s));
  EXPECT_EQ(look(wait, 101s, 105s, 101500ms), at(104500ms));
}

// It gets less than its share, but it does look: whoever stands still is given up, only later.
TEST(WaitEnd, ComesAlsoToAWorkerThatIsOftenHeldUp) {
  WaitEnd wait(Limit::silence(3s), at(0s));
  Duration now{0};
  while (at(now) < wait.at(at(now), at(0s)) && now < 1h) now += 1s;
  EXPECT_EQ(now, 3s * (1s / WaitEnd::kLongestPause));
}

TEST(WaitEnd, IsTheTimeOfADeadlineWhateverHappens) {
  WaitEnd wait(Limit(at(5s)), at(0s));
  EXPECT_EQ(wait.at(at(1s), at(1s)), at(5s));
  EXPECT_EQ(wait.at(at(100s), at(90s)), at(5s));
  WaitEnd never(Limit(kNever), at(0s));
  EXPECT_EQ(never.at(at(100s), at(0s)), kNever);
}

}  // namespace
}  // namespace skein

// When a silent peer is taken for lost.
#include <gtest/gtest.h>

#include "fabric/tcp/pulse.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

// A worker that looks at its pulse as it should, from time 0.
class Watch {
 public:
  void pass(Duration time) {
    for (const Time end = now + time; now < end; pulse.pass(now))
      now += std::min<Duration>(kBeatEvery, end - now);
  }
  void beats(int count, Duration gap) {
    for (int i = 0; i < count; ++i) {
      pass(gap);
      pulse.beat(now);
    }
  }
  Time now{};
  Pulse pulse{now, kLeastSilence, 60s};
};

TEST(Pulse, LosesOneThatIsSilentForTheLeastTimeWhenItsBeatsAreRegular) {
  Watch watch;
  watch.beats(50, kBeatEvery);
  EXPECT_EQ(watch.pulse.limit(), kLeastSilence);
  watch.pass(kLeastSilence - 500ms);
  EXPECT_FALSE(watch.pulse.silent());
  watch.pass(1s);
  EXPECT_TRUE(watch.pulse.silent());
}

TEST(Pulse, WaitsLongerForOneWhoseBeatsAreNot) {
  Watch watch;
  for (int i = 0; i < 30; ++i) watch.beats(1, i % 3 == 0 ? 6s : 500ms);
  EXPECT_GT(watch.pulse.limit(), 20s);
  EXPECT_LT(watch.pulse.limit(), 60s);
  watch.beats(200, kBeatEvery);  // that was long ago
  EXPECT_EQ(watch.pulse.limit(), kLeastSilence);
}

TEST(Pulse, CountsWhateverComesAsALifeSign) {
  Watch watch;
  watch.beats(5, kBeatEvery);
  for (int i = 0; i < 100; ++i) {
    watch.pass(5s);
    watch.pulse.hear(watch.now);
    EXPECT_FALSE(watch.pulse.silent());
  }
}

TEST(Pulse, DoesNotCountTheTimeInWhichThisWorkerDidNotLook) {
  Watch watch;
  watch.beats(5, kBeatEvery);
  watch.now += 1h;  // it was stopped
  watch.pulse.pass(watch.now);
  EXPECT_FALSE(watch.pulse.silent());
  EXPECT_LT(watch.pulse.silence(), 1s);
  watch.beats(100, kBeatEvery);
  EXPECT_EQ(watch.pulse.limit(), kLeastSilence);
}

// A worker may meet with others long after it has met with this one, though not after the time
// that all have to meet: one that was stopped before is noticed, too.
TEST(Pulse, WaitsForTheFirstBeatAsLongAsWorkersMayTakeToMeet) {
  Watch watch;
  watch.pass(59s);
  EXPECT_FALSE(watch.pulse.silent());
  watch.pass(2s);
  EXPECT_TRUE(watch.pulse.silent());
  Watch other;
  other.pass(59s);
  other.beats(1, kBeatEvery);
  EXPECT_FALSE(other.pulse.silent());
  other.pass(kLeastSilence + 1s);
  EXPECT_TRUE(other.pulse.silent());
}

}  // namespace
}  // namespace skein::tcp

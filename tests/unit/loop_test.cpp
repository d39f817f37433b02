#include "core/loop.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// Runs a loop on a clock that jumps from timer to timer, as the virtual cluster does.
class LoopTest : public testing::Test {
 protected:
  void run() {
    for (;;) {
      loop.run_ready();
      const auto next = loop.next_timer();
      if (!next) return;
      clock.advance_to(*next);
    }
  }
  int at_ms() const { return static_cast<int>(clock.now().time_since_epoch() / 1ms); }

  ManualClock clock;
  Loop loop{clock};
  std::vector<std::string> log;
};

Task<int> answer() { co_return 42; }
Task<int> late_answer(Loop& loop) {
  co_await loop.sleep_for(5ms);
  co_return 43;
}
Task<> fail(Loop& loop, Duration after, const char* text) {
  co_await loop.sleep_for(after);
  throw Error(text);
}
Task<> sleep(Loop& loop, Duration time, bool* cancelled = nullptr) {
  try {
    co_await loop.sleep_for(time);
  } catch (const Cancelled&) {
    if (cancelled) *cancelled = true;
    throw;
  }
}

Task<> take_turns(Loop& loop, std::vector<std::string>& log, std::string name) {
  for (int i = 0; i < 2; ++i) {
    log.push_back(name + std::to_string(i));
    co_await loop.yield();
  }
}

TEST_F(LoopTest, WhoYieldsLetsTheOthersGoFirst) {
  loop.spawn(take_turns(loop, log, "a"));
  loop.spawn(take_turns(loop, log, "b"));
  run();
  EXPECT_EQ(log, (std::vector<std::string>{"a0", "b0", "a1", "b1"}));
}

Task<> note_when_idle(Loop& loop, std::vector<std::string>& log, std::string name) {
  co_await loop.idle();
  log.push_back(name);
}

TEST_F(LoopTest, WhoWaitsForIdlenessGoesOnWhenNobodyElseCan) {
  loop.spawn(note_when_idle(loop, log, "idle"));
  loop.spawn(note_when_idle(loop, log, "idle too"));
  loop.spawn(take_turns(loop, log, "a"));
  run();
  EXPECT_EQ(log, (std::vector<std::string>{"a0", "a1", "idle", "idle too"}));
}

TEST_F(LoopTest, ATurnIsOneOfEachAndEndsWhenItIsEnough) {
  loop.spawn(take_turns(loop, log, "a"));
  loop.spawn(take_turns(loop, log, "b"));
  EXPECT_EQ(loop.run_turn([] { return false; }), 2u);
  EXPECT_EQ(log, (std::vector<std::string>{"a0", "b0"}));
  EXPECT_EQ(loop.run_turn([] { return true; }), 1u);
  EXPECT_EQ(log.back(), "a1");
}

TEST_F(LoopTest, AYieldOfACancelledJobThrows) {
  Job job = loop.spawn(take_turns(loop, log, "a"));
  job.cancel();
  run();
  EXPECT_EQ(log.size(), 1u);
  EXPECT_THROW(job.rethrow(), Cancelled);
}

TEST_F(LoopTest, ValuesAndExceptionsPassToTheAwaiter) {
  int sum = 0;
  std::string error;
  const auto body = [&]() -> Task<> {
    sum += co_await answer();
    sum += co_await late_answer(loop);
    try {
      co_await fail(loop, 1ms, "no");
    } catch (const Error& e) {
      error = e.what();
    }
  };
  const Job job = loop.spawn(body());
  run();
  EXPECT_TRUE(job.done());
  EXPECT_EQ(sum, 85);
  EXPECT_EQ(error, "no");
  EXPECT_EQ(at_ms(), 6);
}

TEST_F(LoopTest, TimersFireInOrderOfTimeThenOfRequest) {
  const auto body = [&](std::string name, Duration time) -> Task<> {
    co_await loop.sleep_for(time);
    log.push_back(name);
  };
  loop.spawn(body("b", 2ms));
  loop.spawn(body("a", 1ms));
  loop.spawn(body("c", 2ms));
  run();
  EXPECT_EQ(log, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(LoopTest, AHundredThousandImmediateAwaitsNeedNoStack) {
  int sum = 0;
  const auto body = [&]() -> Task<> {
    for (int i = 0; i < 100000; ++i) sum += co_await answer() - 41;
    for (int i = 0; i < 100000; ++i) co_await loop.sleep_for(0ns);
  };
  loop.spawn(body());
  run();
  EXPECT_EQ(sum, 100000);
}

TEST_F(LoopTest, SignalWakesAllOrTheDeadlineDoes) {
  Signal signal(loop);
  const auto body = [&](std::string name, Duration deadline) -> Task<> {
    log.push_back(name + (co_await signal.wait(loop.now() + deadline) ? " yes" : " no"));
  };
  const auto notify = [&]() -> Task<> {
    co_await loop.sleep_for(10ms);
    signal.notify_all();
  };
  loop.spawn(body("a", 20ms));
  loop.spawn(body("b", 5ms));
  loop.spawn(body("c", 20ms));
  loop.spawn(notify());
  run();
  EXPECT_EQ(log, (std::vector<std::string>{"b no", "a yes", "c yes"}));
  EXPECT_EQ(at_ms(), 10);  // a cancelled deadline does not hold the clock up
}

TEST_F(LoopTest, CancelReachesTheInnermostWait) {
  bool cancelled = false;
  Job job = loop.spawn(sleep(loop, 1h, &cancelled));
  loop.run_ready();
  job.cancel();
  run();
  EXPECT_TRUE(cancelled);
  EXPECT_TRUE(job.done());
  EXPECT_EQ(at_ms(), 0);
  bool rethrown = false;
  const auto body = [&]() -> Task<> {
    try {
      co_await job.join();
    } catch (const Cancelled&) {
      rethrown = true;
    }
  };
  loop.spawn(body());
  run();
  EXPECT_TRUE(rethrown);
}

TEST_F(LoopTest, CancelBeforeTheFirstWaitCounts) {
  bool cancelled = false;
  Job job = loop.spawn(sleep(loop, 1h, &cancelled));
  job.cancel();
  run();
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(at_ms(), 0);
}

TEST_F(LoopTest, AllOfEndsWithTheLastAndFailsWithTheFirst) {
  bool cancelled = false;
  std::string error;
  const auto body = [&]() -> Task<> {
    std::vector<Task<>> good;
    good.push_back(sleep(loop, 3ms));
    good.push_back(sleep(loop, 7ms));
    co_await all_of(loop, std::move(good));
    EXPECT_EQ(at_ms(), 7);
    std::vector<Task<>> bad;
    bad.push_back(sleep(loop, 1h, &cancelled));
    bad.push_back(fail(loop, 1ms, "second"));
    try {
      co_await all_of(loop, std::move(bad));
    } catch (const Error& e) {
      error = e.what();
    }
  };
  loop.spawn(body());
  run();
  EXPECT_EQ(error, "second");
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(at_ms(), 8);
}

TEST_F(LoopTest, CancellingAllOfCancelsItsTasks) {
  bool first = false, second = false;
  const auto body = [&]() -> Task<> {
    std::vector<Task<>> tasks;
    tasks.push_back(sleep(loop, 1h, &first));
    tasks.push_back(sleep(loop, 1h, &second));
    co_await all_of(loop, std::move(tasks));
  };
  Job job = loop.spawn(body());
  loop.run_ready();
  job.cancel();
  run();
  EXPECT_TRUE(first && second && job.done());
  EXPECT_EQ(at_ms(), 0);
}

TEST_F(LoopTest, ABackgroundFailureIsKept) {
  loop.spawn_background(fail(loop, 1ms, "background"));
  EXPECT_NO_THROW(loop.rethrow_failure());
  run();
  EXPECT_THROW(loop.rethrow_failure(), Error);
}

TEST_F(LoopTest, AScopedJobEndsWithItsOwnerAlsoWhenItIsAboutToRun) {
  bool woke = false;
  const auto body = [&](Signal& signal) -> Task<> {
    std::vector<Task<>> inner;
    const auto wait = [&]() -> Task<> {
      co_await signal.wait();
      woke = true;
    };
    inner.push_back(wait());
    co_await all_of(loop, std::move(inner));
  };
  Signal signal(loop);
  {
    const ScopedJob job(loop.spawn(body(signal)));
    loop.run_ready();
    signal.notify_all();  // the inner job is queued, but its owner goes first
  }
  run();
  EXPECT_FALSE(woke);
  EXPECT_FALSE(loop.busy());
}

TEST_F(LoopTest, AbandonedJobsFreeWhatTheyHold) {
  const auto held = std::make_shared<int>(1);
  const auto body = [&](std::shared_ptr<int> copy) -> Task<> {
    co_await loop.sleep_for(1h);
    *copy = 2;
  };
  loop.spawn(body(held));
  loop.run_ready();
  EXPECT_EQ(held.use_count(), 2);
  loop.abandon_jobs();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(loop.next_timer().has_value());
}

struct CallsWhenFreed {
  ~CallsWhenFreed() { signal.notify_all(); }
  Signal& signal;
};

Task<> wait_for(Signal& signal) { co_await signal.wait(); }

// Parameters go after locals: `body` still waits when `call` wakes it.
Task<> call_when_freed(Signal& signal, Task<> body) {
  const CallsWhenFreed call{signal};
  co_await body;
}

TEST(Loop, AJobThatIsWokenWhileItIsFreedIsNotResumed) {
  ManualClock clock;
  Loop loop(clock);
  Signal signal(loop);
  Job job = loop.spawn(call_when_freed(signal, wait_for(signal)));
  loop.run_ready();
  ASSERT_TRUE(signal.awaited());
  job.abandon();
  loop.run_ready();  // would resume what is gone
  EXPECT_TRUE(job.done());
}

}  // namespace
}  // namespace skein

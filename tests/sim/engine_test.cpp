#include "sim/engine.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace skein::sim {
namespace {

using namespace std::chrono_literals;
using Log = std::vector<std::string>;

class EngineTest : public testing::Test {
 protected:
  Engine::End run(const Engine::Limits& limits = {}) {
    return engine.run([] { return false; }, limits);
  }
  void note(const std::string& what) {
    log.push_back(what + "@" + std::to_string((engine.now() - Time()) / 1ms));
  }
  void at(Duration time, const std::string& what) {
    engine.schedule(Time() + time, [this, what] { note(what); });
  }
  // Starts a task on a loop from outside of it.
  void spawn(int loop, Task<> task) {
    engine.loop(loop).spawn(std::move(task));
    engine.wake(loop);
  }
  Task<> note_after(int loop, Duration pause, std::string what) {
    co_await engine.loop(loop).sleep_for(pause);
    note(what);
  }
  Task<> hold(int loop, std::shared_ptr<int> held) {
    co_await engine.loop(loop).sleep_for(1h);
    *held = 1;
  }

  Log log;
  Engine engine;
};

// Notes its tokens, and the end of every instant that it asked for.
class Recorder final : public Engine::Handler {
 public:
  Recorder(Engine& engine, Log& log, std::string name)
      : engine_(engine), log_(log), name_(std::move(name)) {}
  void happen(std::uint64_t token) override {
    log_.push_back(name_ + std::to_string(token));
    engine_.settle_later(*this);
  }
  void settle() override { log_.push_back(name_ + "settle"); }

 private:
  Engine& engine_;
  Log& log_;
  std::string name_;
};

TEST_F(EngineTest, EventsHappenByTimeThenInTheOrderInWhichTheyWereScheduled) {
  at(2ms, "c");
  at(1ms, "a");
  at(2ms, "d");
  at(1ms, "b");
  EXPECT_EQ(run(), Engine::End::idle);
  EXPECT_EQ(log, (Log{"a@1", "b@1", "c@2", "d@2"}));
  EXPECT_EQ(engine.events(), 4u);
}

TEST_F(EngineTest, AnEventMayScheduleAnotherAtItsOwnInstant) {
  engine.schedule(Time() + 1ms, [this] { at(1ms, "second"); });
  at(1ms, "first");
  at(2ms, "third");
  run();
  EXPECT_EQ(log, (Log{"first@1", "second@1", "third@2"}));
}

TEST_F(EngineTest, AnEventInThePastIsABug) {
  at(5ms, "x");
  run();
  EXPECT_DEATH(at(4ms, "y"), "an event in the past");
}

TEST_F(EngineTest, LoopsRunAfterTheEventsOfAnInstantInTheOrderInWhichTheyWereWoken) {
  for (int i = 0; i < 3; ++i) engine.add_loop();
  std::vector<std::unique_ptr<Signal>> signals;
  const auto wait = [&](int loop) -> Task<> {
    co_await signals[static_cast<std::size_t>(loop)]->wait();
    note("loop " + std::to_string(loop));
  };
  for (int i = 0; i < 3; ++i) {
    signals.push_back(std::make_unique<Signal>(engine.loop(i)));
    spawn(i, wait(i));
  }
  for (const int i : {2, 0, 1})
    engine.schedule(Time() + 1ms, [&, i] {
      note("event");
      signals[static_cast<std::size_t>(i)]->notify_all();
      engine.wake(i);
    });
  run();
  EXPECT_EQ(log, (Log{"event@1", "event@1", "event@1", "loop 2@1", "loop 0@1", "loop 1@1"}));
}

TEST_F(EngineTest, TimersOfAllLoopsShareOneClock) {
  for (int i = 0; i < 2; ++i) engine.add_loop();
  spawn(1, note_after(1, 3ms, "b"));
  spawn(0, note_after(0, 5ms, "c"));
  spawn(0, note_after(0, 1ms, "a"));
  run();
  EXPECT_EQ(log, (Log{"a@1", "b@3", "c@5"}));
}

TEST_F(EngineTest, SettleComesOnceAtTheEndOfTheInstant) {
  Recorder recorder(engine, log, "r");
  engine.add_loop();
  engine.schedule(Time() + 1ms, recorder, 7);
  engine.schedule(Time() + 1ms, recorder, 8);
  engine.schedule(Time() + 1ms, [this] { spawn(0, note_after(0, 0ms, "loop")); });
  engine.schedule(Time() + 2ms, recorder, 9);
  run();
  EXPECT_EQ(log, (Log{"r7", "r8", "loop@1", "rsettle", "r9", "rsettle"}));
}

TEST_F(EngineTest, APausedLoopKeepsWhatComesAndRunsItLate) {
  engine.add_loop();
  engine.add_loop();
  spawn(0, note_after(0, 2ms, "paused"));
  spawn(0, note_after(0, 9ms, "later"));
  spawn(1, note_after(1, 3ms, "other"));
  engine.schedule(Time() + 1ms, [this] { engine.pause(0); });
  engine.schedule(Time() + 4ms, [this] { spawn(0, note_after(0, 0ms, "spawned")); });
  engine.schedule(Time() + 6ms, [this] { engine.resume(0); });
  run();
  EXPECT_EQ(log, (Log{"other@3", "paused@6", "spawned@6", "later@9"}));
}

TEST_F(EngineTest, APauseBetweenWakingAndRunningHoldsTheLoop) {
  engine.add_loop();
  engine.schedule(Time() + 1ms, [this] {
    spawn(0, note_after(0, 0ms, "x"));
    engine.pause(0);
  });
  EXPECT_EQ(run(), Engine::End::idle);
  EXPECT_TRUE(log.empty());
  engine.resume(0);
  run();
  EXPECT_EQ(log, (Log{"x@1"}));
}

TEST_F(EngineTest, StopFreesTheJobsAndTheLoopNeverRunsAgain) {
  engine.add_loop();
  const auto held = std::make_shared<int>(0);
  spawn(0, hold(0, held));
  spawn(0, note_after(0, 2ms, "never"));
  engine.schedule(Time() + 1ms, [&] {
    EXPECT_EQ(held.use_count(), 2);
    engine.stop(0);
    EXPECT_EQ(held.use_count(), 1);
  });
  EXPECT_EQ(run(), Engine::End::idle);
  EXPECT_TRUE(log.empty());
  EXPECT_FALSE(engine.loop(0).busy());
}

TEST_F(EngineTest, ARestartedLoopIsNewAndTheOldTimersDoNotWakeIt) {
  engine.add_loop();
  spawn(0, note_after(0, 3ms, "old"));
  engine.schedule(Time() + 1ms, [this] {
    engine.stop(0);
    engine.restart(0);
    spawn(0, note_after(0, 4ms, "new"));
  });
  run();
  EXPECT_EQ(log, (Log{"new@5"}));
}

TEST_F(EngineTest, RestartOfARunningLoopIsABug) {
  engine.add_loop();
  EXPECT_DEATH(engine.restart(0), "runs already");
}

TEST_F(EngineTest, TheTimeLimitLeavesTheClockAtTheLimitAndTheRestForLater) {
  at(1ms, "a");
  at(3ms, "b");
  EXPECT_EQ(run({.until = Time() + 2ms}), Engine::End::time);
  EXPECT_EQ(engine.now(), Time() + 2ms);
  EXPECT_EQ(log, (Log{"a@1"}));
  EXPECT_EQ(run({.until = Time() + 3ms}), Engine::End::idle);
  EXPECT_EQ(log, (Log{"a@1", "b@3"}));
}

TEST_F(EngineTest, TheEventLimitEndsARunThatNeverWould) {
  std::function<void()> again = [&] { engine.schedule(engine.now(), again); };
  again();
  EXPECT_EQ(run({.until = kNever, .events = 1000}), Engine::End::events);
  EXPECT_EQ(engine.events(), 1000u);
}

TEST_F(EngineTest, TheConditionIsLookedAtWhenAnInstantIsOver) {
  at(1ms, "a");
  at(1ms, "b");
  at(2ms, "c");
  EXPECT_EQ(engine.run([this] { return !log.empty(); }, {}), Engine::End::condition);
  EXPECT_EQ(log, (Log{"a@1", "b@1"}));
}

TEST_F(EngineTest, IdleMeansThatNobodyCouldEverGoOn) {
  engine.add_loop();
  Signal signal(engine.loop(0));
  const auto wait = [&]() -> Task<> { co_await signal.wait(); };
  const Job job = engine.loop(0).spawn(wait());
  engine.wake(0);
  EXPECT_EQ(run(), Engine::End::idle);
  EXPECT_FALSE(job.done());
  engine.stop(0);
}

// A deadline that stays while short timers and signals come and go is one event, not one for each.
TEST_F(EngineTest, ALongTimerIsScheduledOnce) {
  engine.add_loop();
  Signal signal(engine.loop(0));
  const auto notify = [&] {
    signal.notify_all();
    engine.wake(0);
  };
  const auto naps = [&]() -> Task<> {
    for (int i = 0; i < 1000; ++i) {
      co_await engine.loop(0).sleep_for(1ms);
      engine.schedule(engine.now() + 1ms, notify);
      co_await signal.wait();
    }
  };
  spawn(0, note_after(0, 1h, "long"));
  spawn(0, naps());
  run();
  EXPECT_EQ(log, (Log{"long@3600000"}));
  // 2 beginnings; 1001 timers and 1000 notices, each of which resumes a coroutine.
  EXPECT_EQ(engine.events(), 2u + 2 * 2001);
}

TEST_F(EngineTest, TheHashDependsOnEveryWordAndOnTime) {
  const auto hash_of = [](Duration time, std::uint64_t what, std::uint64_t a, std::uint64_t b) {
    Engine fresh;
    fresh.schedule(Time() + time, [&] { fresh.record(what, a, b); });
    fresh.run([] { return false; }, {});
    return fresh.hash();
  };
  const std::uint64_t hash = hash_of(1ms, 1, 2, 3);
  EXPECT_EQ(hash, hash_of(1ms, 1, 2, 3));
  EXPECT_NE(hash, Engine().hash());
  EXPECT_NE(hash, hash_of(1ms + 1ns, 1, 2, 3));
  EXPECT_NE(hash, hash_of(1ms, 9, 2, 3));
  EXPECT_NE(hash, hash_of(1ms, 1, 9, 3));
  EXPECT_NE(hash, hash_of(1ms, 1, 2, 9));
  EXPECT_NE(hash, hash_of(1ms, 1, 3, 2));
}

TEST_F(EngineTest, TheHashDependsOnTheOrder) {
  const auto hash_of = [](std::uint64_t first, std::uint64_t second) {
    Engine fresh;
    fresh.record(first);
    fresh.record(second);
    return fresh.hash();
  };
  EXPECT_EQ(hash_of(1, 2), hash_of(1, 2));
  EXPECT_NE(hash_of(1, 2), hash_of(2, 1));
}

}  // namespace
}  // namespace skein::sim

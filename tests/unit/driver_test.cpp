// What a Driver calls when, which buckets it lets leave, and what it counts as computing and as
// waiting.
#include "strategy/driver.h"

#include <gtest/gtest.h>

#include "fabric/alone.h"
#include "optimize/sgd.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;
using Calls = std::vector<std::string>;

constexpr StrategyTraits kNoting{.waits_for = "", .updates = "", .does = ""};

// Notes what it is called for, and takes its time: 1 ms to begin, 2 ms for a read, 4 ms to end.
class Noting final : public Strategy {
 public:
  explicit Noting(Worker& worker)
      : Strategy(worker, kNoting), plan_(worker.arena(), Fusion::none()) {
    behaviour_ = {.waits_for_reads = true, .sends_in_backward = true};
  }

  const BucketPlan& plan() const override { return plan_; }
  Task<> begin_step(std::int64_t samples) override {
    calls.push_back("begin " + std::to_string(samples));
    co_await worker_.loop().sleep_for(1ms);
  }
  Task<Mark> need(int bucket) override {
    calls.push_back("need " + std::to_string(bucket));
    co_await worker_.loop().sleep_for(2ms);
    co_return nullptr;
  }
  void gradient_ready(int bucket) override { calls.push_back("ready " + std::to_string(bucket)); }
  Task<> end_step(std::int64_t samples) override {
    calls.push_back("end " + std::to_string(samples));
    co_await worker_.loop().sleep_for(4ms);
  }
  void after_flush() override { calls.push_back("after flush"); }

  Calls calls;

 private:
  BucketPlan plan_;
};

// Trains slots 0 and 2 alone.
struct Frozen final : Program {
  bool expects_gradient(int slot) const override { return slot != 1; }
};

class DriverOfOneWorker : public testing::Test {
 protected:
  void wait(Task<> task) {
    const Job job = loop.spawn(std::move(task));
    while (loop.run_ready() > 0 || !job.done())
      if (const auto next = loop.next_timer()) clock.advance_to(*next);
    driver->follow();
    job.rethrow();
  }

  void use(Program& program) { driver.emplace(worker, strategy, time, program); }
  Calls calls() { return std::exchange(strategy.calls, {}); }

  ManualClock clock;
  Loop loop{clock};
  AloneFabric fabric{loop};
  Arena arena{{{"a", 10}, {"b", 10}, {"c", 10}}, allocate_on_heap};  // buckets 2, 1, 0
  Sgd optimizer{arena.size(), {}};
  WorkerTime time;
  Worker worker{fabric, arena, optimizer, LearningRate(0.1, Schedule{}), time, 1s, 0};
  Noting strategy{worker};
  Program program;
  std::optional<Driver> driver{std::in_place, worker, strategy, time, program};
};

TEST_F(DriverOfOneWorker, BeginsEachStepOnce) {
  driver->expect(8);
  for (int i = 0; i < 3; ++i) wait(driver->begin());
  driver->gradient(2);
  driver->gradient(1);
  driver->gradient(0);
  wait(driver->end(8));
  EXPECT_EQ(calls(), (Calls{"begin 8", "ready 0", "ready 1", "ready 2", "end 8"}));
  EXPECT_FALSE(driver->begun());
  wait(driver->end(3));  // without gradients; the number is known by now
  EXPECT_EQ(calls(), (Calls{"begin 3", "end 3"}));
  wait(driver->begin());
  wait(driver->end(0));
  EXPECT_EQ(calls(), (Calls{"begin 3", "end 0"}));
  wait(driver->begin());
  EXPECT_EQ(calls(), (Calls{"begin 3"})) << "a step without samples is nothing to go by";
}

TEST_F(DriverOfOneWorker, LetsABucketLeaveWithTheLastOfItsPasses) {
  driver->accumulate(2);
  driver->expect(8);
  wait(driver->begin());
  for (const int slot : {2, 1, 0, 2}) driver->gradient(slot);
  EXPECT_EQ(calls(), (Calls{"begin 8", "ready 0"}));
  EXPECT_THROW(driver->gradient(2), ConfigError);
}

TEST_F(DriverOfOneWorker, KeepsGradientsWhoseWeightNobodyKnows) {
  wait(driver->begin());
  driver->gradient(2);
  EXPECT_EQ(calls(), (Calls{"begin -1"}));
}

TEST_F(DriverOfOneWorker, LetsBucketsLeaveAtOnceThatExpectNoGradient) {
  Frozen frozen;
  use(frozen);
  driver->expect(8);
  wait(driver->begin());
  driver->gradient(2);
  driver->gradient(0);
  EXPECT_EQ(calls(), (Calls{"begin 8", "ready 1", "ready 0", "ready 2"}));
}

TEST_F(DriverOfOneWorker, KnowsWhatNobodyHasReadSinceTheLastStep) {
  EXPECT_EQ(driver->unread(2), -1);
  wait(driver->end(8));
  EXPECT_EQ(driver->unread(2), 0);
  wait(driver->need(0));
  EXPECT_EQ(driver->unread(2), -1);
  EXPECT_EQ(driver->unread(0), 2);
  wait(driver->flush());
  EXPECT_FALSE(driver->any_unread());
}

TEST_F(DriverOfOneWorker, GoesOnAfterAFlushOnce) {
  driver->after_flush();
  wait(driver->flush());
  driver->expect(8);
  driver->expect(8);
  EXPECT_EQ(calls(), (Calls{"after flush"}));
}

TEST_F(DriverOfOneWorker, CountsWaitsAsWaitingAndTheRestAsComputing) {
  wait(driver->end(8));
  wait(driver->need(2));
  clock.advance_to(clock.now() + 10ms);
  wait(driver->begin());
  clock.advance_to(clock.now() + 20ms);
  EXPECT_EQ(driver->waited(), 3ms);
  wait(driver->end(8));
  EXPECT_EQ(worker.meters.compute, 30ms);
  EXPECT_EQ(time.waiting(), 12ms);
  clock.advance_to(clock.now() + 5ms);  // between steps
  driver->start_computing();
  wait(driver->end(8));
  EXPECT_EQ(worker.meters.compute, 0ms);
}

}  // namespace
}  // namespace skein

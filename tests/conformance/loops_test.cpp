// The loops that users write, under every strategy: epochs with a flush in between, workers with
// different numbers of steps, one that leaves early, one that throws.
#include <gtest/gtest.h>

#include "conformance/harness.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kOther = 7;
constexpr std::int64_t kBatch = 4;
constexpr Duration kPatience = 60s;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// A worker whose gradient is its rank + 1 everywhere, and whose steps take it a moment.
struct Runner : toy::Trainer {
  explicit Runner(Fabric& fabric, const std::string& name, const StrategyOptions& options = {})
      : Trainer(fabric, {{"a", 5000}, {"b", 3}}, name, options,
                {.rate = 0.01, .momentum = 0.9, .patience = kPatience}) {
    start();
  }

  Task<> step(std::int64_t samples, std::int64_t announced) {
    driver.expect(announced);
    co_await read();
    co_await worker.loop().sleep_for((1 + (worker.rank() * 7 + steps * 3) % 5) * 100us);
    co_await driver.begin();
    if (samples > 0)
      for (const Slot& slot : arena.slots())
        for (float& g : floats_of(arena.gradients().at(slot.range))) g += slope();
    all_ready();
    co_await driver.end(samples);
    ++steps;
    counted += samples;
    worker.loop().rethrow_failure();
  }
  Task<> step(std::int64_t samples = kBatch) { co_await step(samples, samples); }

  float slope() const { return static_cast<float>(worker.rank() + 1); }
  Span model() const { return arena.parameters(); }

  int steps = 0;
  std::int64_t counted = 0;  // what this worker has computed
};

// After a flush: the same bits and the same progress everywhere, and no sample lost.
Task<> expect_equal(Runner& runner, Fabric& fabric) {
  const Deadline deadline = fabric.loop().now() + 2 * kPatience;
  const auto memory = allocate_on_heap(runner.model().count);
  std::ranges::copy(floats_of(runner.model()), floats_of(memory->span()).begin());
  co_await fabric.broadcast(kOther, memory->span(), 0, deadline);
  require(std::ranges::equal(floats_of(runner.model()), floats_of(memory->span())),
          "replicas differ");
  const auto counts = allocate_on_heap(1);
  floats_of(counts->span())[0] = static_cast<float>(runner.counted);
  co_await fabric.all_reduce(kOther, counts->span(), deadline);
  const auto all = static_cast<std::int64_t>(floats_of(counts->span())[0]);
  require(runner.worker.progress.samples == all,
          "counted " + std::to_string(runner.worker.progress.samples) + " samples of " +
              std::to_string(all));
}

class OrdinaryLoops : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  const World& world() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  const std::string& strategy() const { return std::get<2>(GetParam()); }
  void run_all_ok(const Body& body) const { expect_ok(world(), size(), body); }
};

TEST_P(OrdinaryLoops, AFixedNumberOfStepsThenFlush) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int i = 0; i < 50; ++i) co_await runner.step();
    co_await runner.driver.flush();
    co_await expect_equal(runner, fabric);
    require(floats_of(runner.model())[0] < 0, "nothing was learnt");
  });
}

TEST_P(OrdinaryLoops, EpochsWithAFlushAfterEach) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int i = 0; i < 7; ++i) co_await runner.step();
      co_await runner.driver.flush();
      co_await expect_equal(runner, fabric);
    }
  });
}

// Each worker has other data: in one epoch one of them has none at all.
TEST_P(OrdinaryLoops, EpochsOfDifferentLengths) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int epoch = 1; epoch <= 4; ++epoch) {
      const int steps = (fabric.rank() + epoch) % fabric.size() * 6;
      for (int i = 0; i < steps; ++i) co_await runner.step();
      co_await runner.driver.flush();
      co_await expect_equal(runner, fabric);
    }
  });
}

TEST_P(OrdinaryLoops, AShortLastBatchOfAnotherSizeOnEachWorker) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < 5; ++i) co_await runner.step();
      co_await runner.step(1 + fabric.rank());
      co_await runner.driver.flush();
      co_await expect_equal(runner, fabric);
    }
  });
}

// A flush with nothing to do leaves every bit where it is.
TEST_P(OrdinaryLoops, AFlushAfterAFlushChangesNothing) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int i = 0; i < 3 + fabric.rank(); ++i) co_await runner.step();
    co_await runner.driver.flush();
    const std::vector<float> before(floats_of(runner.model()).begin(),
                                    floats_of(runner.model()).end());
    for (int i = 0; i < 3; ++i) co_await runner.driver.flush();
    require(std::ranges::equal(floats_of(runner.model()), before), "the model changed");
    co_await expect_equal(runner, fabric);
  });
}

// What a user writes into the parameters between a flush and the next step is what training goes on
// from, and what the next flush leaves if there is no step.
TEST_P(OrdinaryLoops, WhatIsWrittenAfterAFlushCounts) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int i = 0; i < 5; ++i) co_await runner.step();
    co_await runner.driver.flush();
    for (const Slot& slot : runner.arena.slots()) fill(runner.model().at(slot.range), 1000);
    co_await runner.driver.flush();
    require(floats_of(runner.model())[0] == 1000, "lost without a step");
    for (int i = 0; i < 5; ++i) co_await runner.step();
    co_await runner.driver.flush();
    co_await expect_equal(runner, fabric);
    require(floats_of(runner.model())[0] > 990,
            "lost by a step: " + std::to_string(floats_of(runner.model())[0]));
  });
}

// Far longer than it would wait for a sign of life: the others are seen to be at work. Only where
// time costs nothing.
TEST_P(OrdinaryLoops, AWorkerMayWaitInFlushForAsLongAsTheOthersWork) {
  if (!world().name.starts_with("sim")) return;
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int i = 0; i < (fabric.rank() == epoch ? 2 : 60); ++i) {
        co_await fabric.loop().sleep_for(kPatience / 10);
        co_await runner.step();
      }
      co_await runner.driver.flush();
      co_await expect_equal(runner, fabric);
    }
  });
}

// All ends by itself: who leaves has flushed, so the others can do so without it.
TEST_P(OrdinaryLoops, AWorkerThatFlushesEarlyAndLeaves) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    const int steps = fabric.rank() == 0 ? 3 : 20;
    for (int i = 0; i < steps; ++i) co_await runner.step();
    co_await runner.driver.flush();
    require(runner.worker.progress.samples == kBatch * (3 + 20 * (fabric.size() - 1)), "samples");
  });
}

// The others end too, in the end with an error: they never hang.
TEST_P(OrdinaryLoops, AWorkerThatThrowsEndsTheOthers) {
  if (size() == 1) return;
  const auto outcomes = world().run(size(), [name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name);
    for (int i = 0; i < 20; ++i) {
      if (fabric.rank() == 1 && i == 5) throw Error("out of data");
      co_await runner.step();
    }
    co_await runner.driver.flush();
    const bool survives = runner.strategy->survives_losses();
    if (!survives) throw Error("did not notice");
  });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (rank == 1)
      EXPECT_EQ(outcomes[rank].error, "out of data");
    else
      EXPECT_TRUE(outcomes[rank].ok || outcomes[rank].io_error) << outcomes[rank].error;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, OrdinaryLoops,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 3),
                                          testing::ValuesIn(strategy_names())),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

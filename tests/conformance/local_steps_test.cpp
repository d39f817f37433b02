// lasgd and local on real ranks that lag behind each other: how they settle, and what they keep to
// themselves.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/harness.h"
#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kOther = 7;
constexpr std::int64_t kBatch = 4;

// A worker whose gradient is its rank + 1 everywhere.
struct Runner {
  Runner(Fabric& fabric, const std::string& name, const StrategyOptions& options)
      : arena({{"a", 5000}, {"b", 3}}, [&](std::size_t count) { return fabric.allocate(count); }),
        optimizer(arena.size(), {0.9, 0, false}, allocator(fabric)),
        worker(fabric, arena, optimizer, LearningRate(0.1, Schedule{}), trace, 30s, 0),
        strategy(make_strategy(name, options, worker)) {}

  Task<> step(std::int64_t samples = kBatch) {
    co_await strategy->expect(samples);
    co_await strategy->begin_step(samples);
    const auto slope = static_cast<float>(worker.rank() + 1);
    if (samples > 0)
      for (const Slot& slot : arena.slots()) fill(arena.gradients().at(slot.range), slope);
    co_await strategy->end_step(samples);
  }

  NoTrace trace;
  Arena arena;
  Sgd optimizer;
  Worker worker;
  std::unique_ptr<Strategy> strategy;
};

// Whether this worker has rank 0's values.
Task<bool> as_rank_0(Fabric& fabric, Span mine) {
  const auto memory = allocate_on_heap(mine.count);
  std::ranges::copy(floats_of(mine), floats_of(memory->span()).begin());
  co_await fabric.broadcast(kOther, memory->span(), 0, fabric.loop().now() + 30s);
  co_return std::equal(floats_of(mine).begin(), floats_of(mine).end(),
                       floats_of(memory->span()).begin());
}

Task<> expect_settled(Runner& runner, Fabric& fabric, std::int64_t samples) {
  const bool same = co_await as_rank_0(fabric, runner.arena.parameters());
  if (!same) throw Error("replicas differ");
  if (runner.worker.progress.samples != samples)
    throw Error("counted " + std::to_string(runner.worker.progress.samples) + " samples of " +
                std::to_string(samples));
}

class LocalStepsOn : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  void run_all_ok(const Body& body) const {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
  const std::string& strategy() const { return std::get<2>(GetParam()); }
};

// The same number of steps by each, at different times: rounds are on their way for some.
TEST_P(LocalStepsOn, SettleWhateverIsOnItsWay) {
  for (const auto& [period, outer] : {std::pair{"1", "0"}, {"3", "0"}, {"1", "0.7"}, {"3", "0.7"}})
    run_all_ok([period, outer, name = strategy()](Fabric& fabric) -> Task<> {
      Runner runner(fabric, name, {{"period", period}, {"outer_momentum", outer}});
      for (int part = 1; part <= 5; ++part) {
        for (int i = 0; i < part; ++i) {
          co_await fabric.loop().sleep_for(((fabric.rank() * 7 + i * 3) % 5) * 100us);
          co_await runner.step();
        }
        co_await runner.strategy->flush();
        co_await expect_settled(runner, fabric, fabric.size() * kBatch * part * (part + 1) / 2);
        const auto before = floats_of(runner.arena.parameters());
        const std::vector<float> settled(before.begin(), before.end());
        co_await runner.strategy->flush();  // nothing is left to do
        if (!std::ranges::equal(settled, floats_of(runner.arena.parameters())))
          throw Error("a second flush() moves the model");
      }
    });
}

// Who has no data left waits for the others; all leave in the same round.
TEST_P(LocalStepsOn, WaitForOthersWhenTheyHaveNoData) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name, {});
    const std::int64_t budget = kBatch * 5 * fabric.size() * (fabric.size() + 1) / 2;
    std::int64_t left = kBatch * 5 * (fabric.rank() + 1);
    int steps = 0;
    for (; runner.worker.progress.samples < budget; ++steps) {
      co_await runner.step(left > 0 ? kBatch : 0);
      left = std::max<std::int64_t>(0, left - kBatch);
    }
    if (steps > 200) throw Error("spins: " + std::to_string(steps) + " steps");
    co_await runner.strategy->flush();
    co_await expect_settled(runner, fabric, budget);
  });
}

TEST_P(LocalStepsOn, KeepMomentumToThemselvesUnlessAsked) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    StrategyOptions options;
    for (const bool average : {false, true}) {
      if (average && name != "lasgd") continue;
      if (average) options["average_momentum"] = "true";
      Runner runner(fabric, name, options);
      for (int i = 0; i < 6; ++i) co_await runner.step();
      co_await runner.strategy->flush();
      const bool same = co_await as_rank_0(fabric, runner.optimizer.state().at("momentum"));
      if (same != (average || fabric.rank() == 0)) throw Error("momentum is or is not shared");
      OptimizerState state;
      co_await runner.strategy->whole_state(state);
      const bool mean = co_await as_rank_0(fabric, state.at("momentum")->span());
      if (!mean) throw Error("workers save different means");
      const Span expected = state.at("momentum")->span();
      std::size_t shown = 0;
      const TakeState take = [&](const std::string&, Range range, Span values) {
        const auto all_values = floats_of(values);
        const auto all_expected = floats_of(expected);
        for (std::size_t i = 0; i < range.count; ++i)
          shown += all_values[i] == all_expected[range.offset + i];
      };
      co_await runner.strategy->stream_state(0, take);
      if (shown != (fabric.rank() == 0 ? expected.count : 0)) throw Error("streams another mean");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LocalStepsOn,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3, 4),
                                          testing::Values("lasgd", "local")),
                         name_of_three);

class AbsOn : public LocalStepsOn {};

TEST_P(AbsOn, WaitForOthersWhenTheyHaveNoData) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const char* delay : {"1", "0", "auto"}) {
      Runner runner(fabric, "abs", {{"delay", delay}});
      const std::int64_t budget = kBatch * 3 * fabric.size() * (fabric.size() + 1) / 2;
      int left = 3 * (fabric.rank() + 1);
      for (int i = 0; runner.worker.progress.samples < budget; ++i, --left) {
        if (i > 200) throw Error("spins");
        co_await runner.step(left > 0 ? kBatch : 0);
      }
      co_await runner.strategy->flush();
      co_await expect_settled(runner, fabric, budget);
    }
  });
}

// Rounds that were made before the run was interrupted count.
TEST_P(AbsOn, DoNotWarmUpAgainWhenTheyResume) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::int64_t rounds_before : {0, 2, 3}) {
      Runner runner(fabric, "abs", {{"warmup_rounds", "3"}});
      runner.worker.progress.steps = rounds_before;
      int waited = 0;  // rounds that were applied in the step that began them
      for (int i = 0; i < 5; ++i) {
        const std::int64_t before = runner.worker.progress.steps;
        co_await runner.step();
        waited += runner.worker.progress.steps == before + 1 && waited == i ? 1 : 0;
      }
      if (waited != 3 - rounds_before) throw Error(std::to_string(waited) + " without delay");
      co_await runner.strategy->flush();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AbsOn,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3),
                                          testing::Values("abs")),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

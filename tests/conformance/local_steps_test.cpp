// Strategies whose workers have a pace of their own, on real ranks that lag behind each other: how
// they settle, what they keep to themselves, and what comes of steps without samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "conformance/harness.h"
#include "conformance/whole_state.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kOther = 7;
constexpr std::int64_t kBatch = 4;

// A worker whose gradient is its rank + 1 everywhere.
struct Runner : toy::Trainer {
  Runner(Fabric& fabric, const std::string& name, const StrategyOptions& options)
      : Trainer(fabric, {{"a", 5000}, {"b", 3}}, name, options, {.momentum = 0.9}) {}

  Task<> step(std::int64_t samples = kBatch) {
    driver.expect(samples);
    co_await driver.begin();
    const auto slope = static_cast<float>(worker.rank() + 1);
    if (samples > 0)
      for (const Slot& slot : arena.slots()) fill(arena.gradients().at(slot.range), slope);
    co_await driver.end(samples);
  }

  // Computes a gradient, which is not a number, and throws it away.
  Task<> discard() {
    driver.expect(0);
    co_await driver.begin();
    fill(arena.gradients(), NAN);
    co_await driver.end(0);
  }

  // A step of the gradient `factor` · parameters.
  Task<> pull(float factor) {
    driver.expect(kBatch);
    co_await driver.begin();
    copy_scaled(arena.gradients(), factor, arena.parameters());
    co_await driver.end(kBatch);
  }

  std::vector<float> model() const {
    const auto values = floats_of(arena.parameters());
    return {values.begin(), values.end()};
  }
};

// Whether this worker has rank 0's values.
Task<bool> as_rank_0(Fabric& fabric, Span mine) {
  const auto memory = allocate_on_heap(mine.count);
  std::ranges::copy(floats_of(mine), floats_of(memory->span()).begin());
  co_await fabric.broadcast(kOther, memory->span(), 0, fabric.loop().now() + 120s);
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
        co_await runner.driver.flush();
        co_await expect_settled(runner, fabric, fabric.size() * kBatch * part * (part + 1) / 2);
        const auto before = floats_of(runner.arena.parameters());
        const std::vector<float> settled(before.begin(), before.end());
        co_await runner.driver.flush();  // nothing is left to do
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
    co_await runner.driver.flush();
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
      co_await runner.driver.flush();
      const bool same = co_await as_rank_0(fabric, runner.optimizer->state().at("momentum"));
      if (same != (average || fabric.rank() == 0)) throw Error("momentum is or is not shared");
      WholeState state = co_await whole_state(fabric, *runner.strategy, runner.arena.size());
      auto& momentum = state.at("momentum");
      const Span shown{momentum.data(), momentum.size()};
      const bool mean = co_await as_rank_0(fabric, shown);
      if (!mean) throw Error("workers save different means");
      co_await fabric.all_reduce(kOther, runner.optimizer->state().at("momentum"),
                                 fabric.loop().now() + 30s);
      const auto sum = floats_of(runner.optimizer->state().at("momentum"));
      for (std::size_t i = 0; i < shown.count; ++i)
        if (std::abs(sum[i] / static_cast<float>(fabric.size()) - momentum[i]) > 1e-5F)
          throw Error("shows another mean");
    }
  });
}

// The momentum of the mean belongs to the run: flush() leaves it, and the period, as they are, and
// it does not move what is frozen.
TEST_P(LocalStepsOn, KeepTheOuterMomentumThroughAFlush) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name, {{"period", "2"}, {"outer_momentum", "0.5"}});
    const SharedState state = runner.strategy->shared_state();
    const Span velocity = state.vectors.at("outer_momentum");
    // Rounds of lasgd come when they come, on all workers in the same order.
    for (int i = 0; i < 1000 && floats_of(velocity)[0] == 0; ++i) {
      co_await runner.step();
      co_await fabric.loop().sleep_for(1ms);
    }
    co_await runner.driver.flush();
    if (!*state.begun) throw Error("no round has begun it");
    const auto now = floats_of(velocity);
    const std::vector<float> before(now.begin(), now.end());
    if (before.front() == 0) throw Error("there is no momentum");
    const auto words = runner.strategy->own_words();
    co_await runner.driver.flush();
    if (!std::ranges::equal(before, floats_of(velocity))) throw Error("flush() changes it");
    if (words != runner.strategy->own_words()) throw Error("flush() changes the period");
    const bool same = co_await as_rank_0(fabric, velocity);
    if (!same) throw Error("workers have another momentum");

    const Range frozen = runner.arena.slots()[1].range;
    runner.worker.set_groups(std::make_shared<Groups>(
        runner.arena.size(), std::vector<GroupRule>{{.range = frozen, .frozen = true}}));
    const auto model = floats_of(runner.arena.parameters());
    const float still = model[frozen.offset], moving = model[0];
    for (int i = 0; i < 8; ++i) co_await runner.step();
    co_await runner.driver.flush();
    // A mean of three equal values may be one rounding off.
    if (std::abs(floats_of(runner.arena.parameters())[frozen.offset] - still) > 1e-5F)
      throw Error("what is frozen moved");
    if (floats_of(runner.arena.parameters())[0] == moving) throw Error("nothing moved");
  });
}

// A model that is loaded in the middle of a run is no step that all workers have made.
TEST_P(LocalStepsOn, OuterMomentumTakesNoWriteAfterAFlushForTraining) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name, {{"period", "2"}, {"outer_momentum", "0.9"}});
    const SharedState state = runner.strategy->shared_state();
    const auto velocity = [&] { return floats_of(state.vectors.at("outer_momentum"))[0]; };
    const auto train_until = [&](auto over) -> Task<> {
      for (int i = 0; i < 1000 && !over(); ++i) {
        co_await runner.step();
        co_await fabric.loop().sleep_for(1ms);
      }
    };
    co_await train_until([&] { return velocity() != 0; });
    constexpr float kFar = 1e6F;
    for (int load = 0; load < 2; ++load) {
      co_await runner.driver.flush();
      co_await runner.driver.flush();
      for (float& value : floats_of(runner.arena.parameters())) value += kFar;
      if (load == 0) co_await runner.driver.flush();
      const float before = velocity();
      co_await train_until([&] { return velocity() != before; });
      if (velocity() == before) throw Error("no round has come");
      if (std::abs(velocity()) > kFar / 100)
        throw Error("the momentum is " + std::to_string(velocity()));
    }
    const float model = runner.model().front();
    if (std::abs(model - 2 * kFar) > kFar / 10) throw Error("it is at " + std::to_string(model));
  });
}

// Flushes more frequent than the period leave its rounds where they are, whether that is counted in
// steps or in time.
TEST_P(LocalStepsOn, MakeTheRoundsOfAPeriodBetweenFlushes) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    StrategyOptions options{{"outer_momentum", "0.5"}};
    const bool by_time = name == "lasgd" && fabric.size() == 3;
    by_time ? options["period_ms"] = "6" : options["period"] = "5";
    Runner runner(fabric, name, options);
    for (int i = 0; i < 30; ++i) {
      co_await runner.step();
      if (by_time) co_await fabric.loop().sleep_for(1ms);
      if (i % 3 == 2) co_await runner.driver.flush();
    }
    const SharedState state = runner.strategy->shared_state();
    if (!*state.begun) throw Error("flushes took the place of all rounds");
    if (floats_of(state.vectors.at("outer_momentum"))[0] == 0) throw Error("there is no momentum");
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
      co_await runner.driver.flush();
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
      co_await runner.driver.flush();
    }
  });
}

Task<> skip_what_is_not_finite(AveragedGradients& gradients) {
  if (!std::isfinite(gradients.norm())) gradients.skip();
  co_return;
}

// One gradient of one rank is infinite: one round is skipped, and no weight, own look ahead or
// later gradient is ever not finite.
TEST_P(AbsOn, RecoverFromOneInfiniteGradient) {
  for (const char* delay : {"1", "auto"})
    run_all_ok([delay](Fabric& fabric) -> Task<> {
      Runner runner(fabric, "abs", {{"delay", delay}});
      fill(runner.arena.parameters(), 1);
      runner.worker.before_update = skip_what_is_not_finite;
      for (int i = 0; i < 40; ++i)
        co_await runner.pull(fabric.rank() == 1 && i == 10 ? INFINITY : 0.1F);
      co_await runner.driver.flush();
      for (const float value : runner.model())
        if (!std::isfinite(value)) throw Error("not a finite model");
      const std::int64_t rounds = runner.strategy->figures()["rounds"];
      if (runner.worker.progress.steps != rounds - 1)
        throw Error(std::to_string(runner.worker.progress.steps) + " updates in " +
                    std::to_string(rounds) + " rounds");
      co_await expect_settled(runner, fabric, 40 * kBatch * fabric.size());
    });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AbsOn,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3),
                                          testing::Values("abs")),
                         name_of_three);

class OwnPaceOn : public LocalStepsOn {
 protected:
  // With which an update, or a merge, that nobody should make would show.
  static StrategyOptions options(const std::string& strategy) {
    if (strategy == "lasgd" || strategy == "local") return {{"outer_momentum", "0.7"}};
    return {};
  }
};

TEST_P(OwnPaceOn, AStepInWhichNobodyHasSamplesIsNoUpdate) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name, options(name));
    runner.start();
    for (int i = 0; i < 5; ++i) co_await runner.step();
    co_await runner.driver.flush();
    const auto before = runner.model();
    const std::int64_t steps = runner.worker.progress.steps;
    runner.worker.before_update = [](AveragedGradients&) -> Task<> {
      throw Error("before_update() was called");
    };
    for (int i = 0; i < 3; ++i) co_await runner.discard();
    co_await runner.driver.flush();
    const auto after = runner.model();
    // Workers of gossip and acid go on averaging, which rounds.
    const float rounding = name == "gossip" || name == "acid" ? 1e-6F : 0;
    for (std::size_t i = 0; i < after.size(); ++i)
      if (!(std::abs(after[i] - before[i]) <= rounding * std::abs(before[i])))
        throw Error("the model has moved");
    if (runner.worker.progress.steps != steps) throw Error("counts a step");
    co_await expect_settled(runner, fabric, 5 * kBatch * fabric.size());
  });
}

// Rank 0 throws away what is not a number, between steps of which others make more.
TEST_P(OwnPaceOn, ADiscardedBatchLeavesNothing) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Runner runner(fabric, name, options(name));
    runner.start();
    std::int64_t samples = 0;
    for (int i = 0; i < 6; ++i) {
      samples += kBatch * (fabric.size() - (i % 2));
      if (fabric.rank() == 0 && i % 2 == 1)
        co_await runner.discard();
      else
        co_await runner.step();
      if (co_await value_of(fabric.loop(), squared_norm(runner.arena.gradients())) != 0)
        throw Error("gradients are left");
    }
    co_await runner.driver.flush();
    for (const float value : runner.model())
      if (!std::isfinite(value)) throw Error("not a finite model");
    co_await expect_settled(runner, fabric, samples);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, OwnPaceOn,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 3),
                                          testing::Values("lasgd", "local", "abs", "gossip",
                                                          "acid")),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

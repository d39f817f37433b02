// The strategy that docs/write-a-strategy.md shows does what that page says, on every fabric.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "conformance/harness.h"
#include "documented/periodic.h"
#include "optimize/sgd.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr float kRate = 0.5F;
constexpr int kSteps = 5, kPeriod = 2;
constexpr std::int64_t kBatch = 4;
constexpr std::size_t kCount = 5000;

float gradient_of(int rank, int step) { return static_cast<float>((rank + 1) * step); }

// Where every element is when rank r has made `steps(r)` steps and all are averaged. Between two
// averages each step moves one model; an average keeps the sum.
double expected_after(int workers, const std::function<int(int)>& steps) {
  double mean = 0;
  for (int rank = 0; rank < workers; ++rank)
    for (int step = 1; step <= steps(rank); ++step)
      mean -= static_cast<double>(kRate * gradient_of(rank, step)) / workers;
  return mean;
}

void require(bool holds, const char* what) {
  if (!holds) throw Error(what);
}

struct PeriodicRun {
  explicit PeriodicRun(Fabric& fabric)
      : arena({{"a", kCount}}, [&](std::size_t count) { return fabric.allocate(count); }),
        optimizer(arena.size(), {0, 0, false}, allocator(fabric)),
        worker(fabric, arena, optimizer, LearningRate(kRate, Schedule{}), trace, 120s, 0),
        strategy(worker, options()) {}

  static Periodic::Options options() {
    OptionReader reader("periodic", {{"period", std::to_string(kPeriod)}});
    return Periodic::Options(reader);
  }

  float value() const { return floats_of(arena.parameters())[7]; }

  Task<> step(int number) {
    co_await strategy.begin_step(kBatch);
    fill(arena.gradients(), gradient_of(worker.rank(), number));
    const float before = value();
    co_await strategy.end_step(kBatch);
    const double moved = static_cast<double>(value() - before);
    const double alone = -static_cast<double>(kRate * gradient_of(worker.rank(), number));
    if (number % kPeriod != 0) require(std::abs(moved - alone) < 1e-5, "a step not its own");
  }

  void expect_mean(double want) const {
    for (const float value : floats_of(arena.parameters().at({0, kCount})))
      require(std::abs(static_cast<double>(value) - want) < 1e-4, "a wrong mean");
  }

  NoTrace trace;
  Arena arena;
  Sgd optimizer;
  Worker worker;
  Periodic strategy;
};

class Documented : public testing::TestWithParam<std::tuple<World, int>> {};

TEST_P(Documented, StrategyAveragesModelsEveryFewSteps) {
  expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), [](Fabric& fabric) -> Task<> {
    PeriodicRun run(fabric);
    for (int step = 1; step <= kSteps; ++step) co_await run.step(step);
    co_await run.strategy.flush();
    run.expect_mean(expected_after(fabric.size(), [](int) { return kSteps; }));
    require(run.worker.progress.samples == kBatch * kSteps * fabric.size(), "wrong samples");
  });
}

TEST_P(Documented, StrategyLetsWorkersEndAfterDifferentNumbersOfSteps) {
  expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), [](Fabric& fabric) -> Task<> {
    PeriodicRun run(fabric);
    std::set<std::int64_t> updates;  // as a moving average of the model follows them
    run.worker.after_update = [&] { updates.insert(run.worker.progress.steps); };
    const auto steps = [](int rank) { return kSteps + 2 * rank; };
    for (int step = 1; step <= steps(fabric.rank()); ++step) co_await run.step(step);
    co_await run.strategy.flush();
    run.expect_mean(expected_after(fabric.size(), steps));
    require(std::ssize(updates) == steps(fabric.size() - 1), "an update that nobody heard of");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Documented,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 3)),
                         name_of);

}  // namespace
}  // namespace skein::conformance

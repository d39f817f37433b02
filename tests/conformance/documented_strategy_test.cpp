// The strategy that docs/write-a-strategy.md shows does what that page says, on every fabric.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "conformance/harness.h"
#include "documented/periodic.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

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

std::unique_ptr<Strategy> make_periodic(Worker& worker) {
  OptionReader reader("periodic", {{"period", std::to_string(kPeriod)}});
  return std::make_unique<Periodic>(worker, Periodic::Options(reader));
}

struct PeriodicRun : toy::Trainer {
  explicit PeriodicRun(Fabric& fabric)
      : Trainer(fabric, {{"a", kCount}}, make_periodic, {.rate = kRate}) {}

  float value() const { return floats_of(arena.parameters())[7]; }

  Task<> step(int number) {
    co_await driver.begin(kBatch);
    fill(arena.gradients(), gradient_of(worker.rank(), number));
    const float before = value();
    co_await driver.end(kBatch);
    const double moved = static_cast<double>(value() - before);
    const double alone = -static_cast<double>(kRate * gradient_of(worker.rank(), number));
    if (number % kPeriod != 0) require(std::abs(moved - alone) < 1e-5, "a step not its own");
  }

  void expect_mean(double want) const {
    for (const float value : floats_of(arena.parameters().at({0, kCount})))
      require(std::abs(static_cast<double>(value) - want) < 1e-4, "a wrong mean");
  }
};

class Documented : public testing::TestWithParam<std::tuple<World, int>> {};

TEST_P(Documented, StrategyAveragesModelsEveryFewSteps) {
  expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), [](Fabric& fabric) -> Task<> {
    PeriodicRun run(fabric);
    for (int step = 1; step <= kSteps; ++step) co_await run.step(step);
    co_await run.driver.flush();
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
    co_await run.driver.flush();
    run.expect_mean(expected_after(fabric.size(), steps));
    require(std::ssize(updates) == steps(fabric.size() - 1), "an update that nobody heard of");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Documented,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 3)),
                         name_of);

}  // namespace
}  // namespace skein::conformance

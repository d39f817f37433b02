// Runs of millions and billions of samples in virtual time: what all workers count is exact, and
// each mark comes once.
#include <gtest/gtest.h>

#include <numeric>

#include "core/packed.h"
#include "plan/marks.h"
#include "sim/sim_fabric.h"
#include "sim/testbed.h"
#include "toy/trainer.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr int kWorkers = 3;
constexpr Channel kOther = 7;

// One worker, as a trainer drives it.
struct Trainee : toy::Trainer {
  Trainee(Fabric& fabric, const std::string& name)
      : Trainer(fabric, {{"a", 16}}, name, {}, {.rate = 0.01, .patience = 60s, .seed = 7}) {
    start();
  }

  std::int64_t done() const { return worker.progress.samples; }

  // Samples of another number in each step, so that no count is a round one.
  Task<> step(std::int64_t batch) {
    const std::int64_t samples = batch + (steps * 7919 + worker.rank() * 104729) % (batch / 8);
    driver.expect(samples);
    co_await worker.loop().sleep_for((3 + worker.rank()) * 1ms);
    co_await driver.begin();
    all_ready();
    co_await driver.end(samples);
    co_await read();
    own += samples;
    ++steps;
  }

  // The sum over all workers, exact.
  Task<std::int64_t> sum(std::int64_t value) {
    const Merge add = [](std::span<std::byte> into, std::span<const std::byte> from) {
      pack(into, unpack<std::int64_t>(into) + unpack<std::int64_t>(from));
    };
    co_await worker.fabric().combine(kOther, message_in(value), add, kNever);
    co_return value;
  }

  // Where workers count for themselves they agree on the mean.
  Task<std::int64_t> agreed() {
    const std::int64_t all = co_await sum(done());
    co_return all / kWorkers;
  }

  std::int64_t steps = 0, own = 0;
};

struct Training {
  std::int64_t budget, batch, every;
  std::vector<std::vector<std::int64_t>> marks{kWorkers};  // as each worker came to them
  std::vector<std::int64_t> counted = std::vector<std::int64_t>(kWorkers);
  std::vector<std::int64_t> computed = std::vector<std::int64_t>(kWorkers);
};

Task<> train(Fabric& fabric, const std::string& name, Training& run) {
  Trainee trainee(fabric, name);
  const auto rank = static_cast<std::size_t>(fabric.rank());
  Marks marks(run.every, 0, run.budget);
  while (trainee.done() < run.budget) {
    co_await trainee.step(run.batch);
    while (marks.due(trainee.done())) {
      run.marks[rank].push_back(marks.next());
      co_await trainee.strategy->settle();
      const std::int64_t agreed = co_await trainee.agreed();
      marks.pass(agreed);
    }
  }
  co_await trainee.strategy->flush();
  run.counted[rank] = trainee.done();
  run.computed[rank] = trainee.own;
}

Training run_to(const std::string& name, std::int64_t budget, std::int64_t batch,
                std::int64_t every) {
  Training run{budget, batch, every};
  Cluster cluster(kWorkers, plain_network(kByteAtNanosecond, 10us), 1);
  std::vector<Job> jobs;
  for (int rank = 0; rank < kWorkers; ++rank)
    jobs.push_back(cluster.spawn(rank, train(cluster.fabric(rank), name, run)));
  run_until_idle(cluster);
  for (const Job& job : jobs) {
    EXPECT_TRUE(job.done()) << "a worker hangs";
    if (job.done()) job.rethrow();
  }
  return run;
}

class LargeCounts : public testing::TestWithParam<std::string> {};

void expect_exact(const Training& run) {
  const std::int64_t all =
      std::accumulate(run.computed.begin(), run.computed.end(), std::int64_t{0});
  EXPECT_GE(all, run.budget);
  for (const std::int64_t counted : run.counted) EXPECT_EQ(counted, all);
}

TEST_P(LargeCounts, EachMarkOfFiftyMillionSamplesComesOnceAndAllAreCounted) {
  constexpr std::int64_t kBudget = 50'000'000, kEvery = 1'000'007;
  const Training run = run_to(GetParam(), kBudget, 5'001, kEvery);
  expect_exact(run);
  std::vector<std::int64_t> expected;
  for (std::int64_t mark = kEvery; mark <= kBudget; mark += kEvery) expected.push_back(mark);
  for (const auto& marks : run.marks) EXPECT_EQ(marks, expected);
}

// Steps of more than a float can count, and totals of more than 32 bits can.
TEST_P(LargeCounts, BillionsAreExactInSmallStepsAndInHugeOnes) {
  expect_exact(run_to(GetParam(), 5'000'000'000, 1'000'003, 700'000'001));
  expect_exact(run_to(GetParam(), 5'000'000'000, 33'554'435, 1'000'000'007));
}

INSTANTIATE_TEST_SUITE_P(Strategies, LargeCounts, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::sim

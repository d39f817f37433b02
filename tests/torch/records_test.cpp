// How a run is going, as the user's logger is told.
#include "skein/record.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>
#include <thread>

#include "core/worker_time.h"
#include "on_workers.h"
#include "skein/torch.h"
#include "torch/distributed_impl.h"

namespace skein::records_test {
namespace {

constexpr std::int64_t kBatch = 4;

// Makes `steps` steps, each with a loss that is its number, and returns the records.
std::vector<Record> records_of(World& world, const StrategySpec& strategy, int steps,
                               std::int64_t every) {
  torch::manual_seed(1);
  torch::nn::Linear net(3, 1);
  std::vector<Record> records;
  auto run = distribute(world, *net, sgd(0.01), strategy);
  run.report_loss(17);  // nobody looks
  run.on_record(every, [&](const Record& record) { records.push_back(record); });
  for (int step = 1; step <= steps; ++step) {
    net->forward(torch::ones({kBatch, 3})).mean().backward();
    run.report_loss(torch::tensor(static_cast<float>(step)));
    if (step % 2 == 0) run.report("even", step);
    run.step(kBatch);
  }
  run.flush();
  return records;
}

TEST(Records, ComeEverySoManyStepsWithMeansOfWhatWasReported) {
  test::on_workers(2, [](World& world) {
    const auto records = records_of(world, allreduce(), 10, 3);
    ASSERT_EQ(records.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      const Record& record = records[i];
      const auto last = static_cast<std::int64_t>(3 * (i + 1));
      EXPECT_EQ(record.step, last);
      EXPECT_EQ(record.samples, last * 2 * kBatch);
      EXPECT_EQ(record.loss, static_cast<double>(last - 1));
      EXPECT_EQ(record.learning_rate, 0.01);
      EXPECT_EQ(record.more.at("even"), static_cast<double>(last - 1));  // of 2; 4 and 6; 8
      EXPECT_GT(record.samples_per_second, 0);
      EXPECT_GT(record.step_ms, 0);
      EXPECT_GE(record.exposed_comm_ms, 0);
      EXPECT_TRUE(std::isnan(record.consensus));
      EXPECT_GE(record.seconds, i == 0 ? 0 : records[i - 1].seconds);
    }
  });
}

TEST(Records, KnowTheDistanceOfModelsWhereTheStrategyDoes) {
  test::on_workers(2, [](World& world) {
    const auto records = records_of(world, StrategySpec("local").set("period", "2"), 12, 1);
    ASSERT_GE(records.size(), 10u);
    EXPECT_FALSE(std::isnan(records.back().consensus));
  });
}

// One layer that forward does not read: dear waits for its update before the first gradient.
struct PartlyRead : torch::nn::Module {
  PartlyRead() {
    read = register_module("read", torch::nn::Linear(300, 300));
    unread = register_module("unread", torch::nn::Linear(300, 300));
  }
  torch::nn::Linear read = nullptr, unread = nullptr;
};

struct Waits final : Trace {
  void span(Lane lane, std::string_view name, Time, Time) override {
    if (lane == Lane::wait) ++count[std::string(name)];
  }
  std::map<std::string, int> count;
};

TEST(Records, CountNoWaitOfDearAsComputing) {
  test::on_workers(2, [](World& world) {
    PartlyRead net;
    Waits waits;
    auto run = distribute(world, net, sgd(0.01), dear().set("fusion", "none"));
    run.impl().trace_to(&waits);
    constexpr int kSteps = 5;
    Duration computed{};
    const SteadyClock clock;
    const Time begin = clock.now();
    for (int step = 0; step < kSteps; ++step) {
      run.expect(kBatch);
      net.read->forward(torch::ones({kBatch, 300})).mean().backward();
      // Rank 1 waits for this: for the parameters in forward, or at the latest in step().
      if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      run.step(kBatch);
      computed += run.impl().worker().meters.compute;
    }
    const Duration all = clock.now() - begin;
    const WorkerTime& time = run.impl().time();
    EXPECT_LE(computed + time.waiting() + time.updating(), all) << "some of it counts twice";
    EXPECT_GE(waits.count["begin"], kSteps) << "in pieces where an update was made meanwhile";
    EXPECT_GE(waits.count["step"], kSteps);
    EXPECT_GT(waits.count["read"], 0);
    run.impl().trace_to(nullptr);
    run.flush();
  });
}

TEST(Records, OfOneWorkerAreNoConcernOfTheOthers) {
  test::on_workers(2, [](World& world) {
    torch::nn::Linear net(3, 1);
    auto run = distribute(world, *net, sgd(0.01));
    int seen = 0;
    const auto step = [&] {
      net->forward(torch::ones({kBatch, 3})).mean().backward();
      run.step(kBatch);
    };
    if (world.rank() == 1) run.on_record(1, [&](const Record&) { ++seen; });
    step();
    step();
    EXPECT_EQ(seen, world.rank() == 1 ? 2 : 0);
    run.on_record(1, nullptr);
    step();
    EXPECT_EQ(seen, world.rank() == 1 ? 2 : 0);
    run.on_record(1, [](const Record&) {});
    EXPECT_THROW(run.report_loss(torch::ones({2})), ConfigError);
    run.on_record(1, [](const Record&) { throw std::runtime_error("the disk is full"); });
    net->forward(torch::ones({kBatch, 3})).mean().backward();
    EXPECT_THROW(run.step(kBatch), std::runtime_error);
    run.on_record(1, nullptr);
    EXPECT_THROW(run.on_record(0, [](const Record&) {}), ConfigError);
  });
}

}  // namespace
}  // namespace skein::records_test

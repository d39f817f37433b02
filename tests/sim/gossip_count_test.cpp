// How gossip counts the samples of all workers: in messages of constant size, never too many, and
// on after whoever adds them up.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/gossip_scenarios.h"
#include "toy/trainer.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr int kWorkers = 5;

// What all workers have computed, and what each of them believes.
struct Books {
  std::vector<std::int64_t> computed = std::vector<std::int64_t>(kWorkers);
  std::vector<std::int64_t> counted = std::vector<std::int64_t>(kWorkers);
  bool ever_too_many = false;

  std::int64_t all() const {
    return std::accumulate(computed.begin(), computed.end(), std::int64_t{0});
  }
};

Task<> train(Fabric& fabric, std::string name, std::int64_t budget, Duration patience,
             Books& books) {
  const auto rank = static_cast<std::size_t>(fabric.rank());
  toy::Trainer trainer(fabric, {{"a", 16}}, name, {},
                       {.rate = 0.01, .patience = patience, .seed = 7});
  Worker& worker = trainer.worker;
  worker.budget = budget;
  trainer.start();
  for (std::int64_t step = 0; worker.progress.samples < budget; ++step) {
    const std::int64_t samples = 1000 + (step * 7919 + fabric.rank() * 104729) % 500;
    trainer.driver.expect(samples);
    co_await worker.loop().sleep_for((9 + fabric.rank()) * 1ms);
    co_await trainer.driver.begin();
    books.computed[rank] += samples;
    co_await trainer.driver.end(samples);
    books.ever_too_many = books.ever_too_many || worker.progress.samples > books.all();
  }
  co_await trainer.driver.flush();
  books.counted[rank] = worker.progress.samples;
}

struct Training {
  explicit Training(const std::string& name, std::int64_t gradients, Duration patience = 2s)
      : cluster(kWorkers, plain_network(kByteAtNanosecond, 10us), 1),
        budget(gradients * kWorkers * 1000) {
    for (int rank = 0; rank < kWorkers; ++rank)
      jobs.push_back(
          cluster.spawn(rank, train(cluster.fabric(rank), name, budget, patience, books)));
  }
  void at(Duration time, std::function<void()> action) {
    cluster.engine().schedule(Time() + time, std::move(action));
  }
  // All but `dead` come to the same end.
  void finish(const std::set<int>& dead) {
    run_until_idle(cluster);
    for (int rank = 0; rank < kWorkers; ++rank) {
      if (dead.contains(rank)) continue;
      const Job& job = jobs[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(job.done()) << "rank " << rank << " hangs";
      job.rethrow();
      if (agreed < 0) agreed = books.counted[static_cast<std::size_t>(rank)];
      EXPECT_EQ(books.counted[static_cast<std::size_t>(rank)], agreed);
    }
    EXPECT_FALSE(books.ever_too_many) << "more were counted than computed";
    EXPECT_GE(agreed, budget);
    EXPECT_LE(agreed, books.all());
    // At most what each computes while word of the end is on its way.
    EXPECT_LE(books.all(), budget + 6 * kWorkers * 1500);
  }

  Cluster cluster;
  std::int64_t budget;
  Books books;
  std::vector<Job> jobs;
  std::int64_t agreed = -1;
};

TEST(GossipCount, IsExactAtTheEnd) {
  for (const char* name : {"gossip", "acid"}) {
    Training run(name, 300);
    run.finish({});
    EXPECT_EQ(run.agreed, run.books.all()) << name;
  }
}

TEST(GossipCount, OfOneThatDiedStays) {
  Training run("gossip", 300);
  run.at(1s, [&] { run.cluster.end_process(3, "which died"); });
  run.finish({3});
}

// What others had told whoever added up, and it them, is not lost with it, but for the last words.
TEST(GossipCount, GoesOnWhenWhoAddsUpDies) {
  Training run("gossip", 300);
  run.at(700ms, [&] { run.cluster.end_process(3, "which died"); });
  run.at(1s, [&] { run.cluster.end_process(0, "which died"); });
  run.at(1500ms, [&] { run.cluster.end_process(1, "which died"); });
  run.finish({0, 1, 3});
}

// It is not waited for; and it counts on when it is back, with what others were told meanwhile.
TEST(GossipCount, GoesOnWhenWhoAddsUpStandsStill) {
  for (const Duration patience : {2s, 40s}) {
    Training run("gossip", 300, patience);
    run.at(500ms, [&] { run.cluster.pause(0); });
    run.at(1300ms, [&] { run.cluster.resume(0); });
    run.at(2s, [&] { run.cluster.pause(0); });
    run.at(2200ms, [&] { run.cluster.resume(0); });
    run.finish({});
    EXPECT_EQ(run.agreed, run.books.all());
  }
}

TEST(GossipCount, AHostThatVanishesDoesNotHoldUpTheEnd) {
  Scenario scenario = gossip_scenario("acid", 8, 0);
  scenario.time = {};
  scenario.samples = 8 * kBatch * 150;
  scenario.patience = 30s;
  scenario.faults = parse_faults("vanish:rank=0,at=3s", 8, 1);
  const Report report = simulate(scenario, nullptr);
  EXPECT_FALSE(report.hung);
  EXPECT_LT(report.samples, scenario.samples * 105 / 100);
}

// Counts do not pass from neighbour to neighbour: half a ring away would be 150 gradients.
TEST(GossipCount, ALongRingEndsOnTime) {
  Scenario scenario = gossip_scenario("gossip", 300, 0);
  scenario.time = {};
  scenario.samples = 300 * kBatch * 20;
  scenario.jitter = 0.2;
  const Report report = simulate(scenario, nullptr);
  ASSERT_TRUE(report.completed());
  EXPECT_GE(report.samples, scenario.samples);
  EXPECT_LE(report.samples, scenario.samples * 110 / 100);
}

// Besides its models a worker sends as much on a ring of 256 as on one of 16.
TEST(GossipCount, MessagesDoNotGrowWithTheNumberOfWorkers) {
  const auto bytes_per_gradient = [](int workers) {
    const Report report = run_consensus(gossip_scenario("gossip", workers, 100), 1);
    double bytes = 0, gradients = 0;
    for (std::size_t rank = 1; rank < report.workers.size(); ++rank) {
      const WorkerReport& each = report.workers[rank];
      bytes += static_cast<double>(each.bytes_sent);
      gradients += static_cast<double>(each.figures.micro_batches);
    }
    return bytes / gradients;
  };
  EXPECT_LT(bytes_per_gradient(256), 1.1 * bytes_per_gradient(16));
}

}  // namespace
}  // namespace skein::sim

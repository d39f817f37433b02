// The pace of gossip: rates, lag, who waits for whom; and what becomes of it under faults.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/gossip_scenarios.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

// 16 workers and 600 gradients have some thousand averagings: a deviation of 1 to 2 per cent.
TEST(Gossip, KeepsItsRate) {
  for (const char* graph : {"ring", "complete", "exponential", "torus", "star"})
    for (const char* rate : {"0.5", "1", "2"})
      for (const char* schedule : {"poisson", "fixed"}) {
        Scenario scenario = gossip_scenario(
            "acid", 16, 600, {{"topology", graph}, {"rate", rate}, {"schedule", schedule}});
        scenario.jitter = 0.2;
        scenario.speeds = {1, 1, 2, 4, 1, 1, 2, 4, 1, 1, 2, 4, 1, 1, 2, 4};
        const Report report = simulate(scenario, nullptr);
        EXPECT_NEAR(averagings_per_gradient(report) / std::stod(rate), 1, 0.05)
            << graph << " at " << rate << ", " << schedule;
      }
}

// Nobody waits while averagings keep up, however unequal the workers.
TEST(Gossip, KeepsEverybodyBusy) {
  for (const char* strategy : {"gossip", "acid"})
    for (const double jitter : {0.0, 0.2}) {
      Scenario scenario = gossip_scenario(strategy, 16, 300, {{"rate", "2"}});
      scenario.jitter = jitter;
      scenario.speeds = {1, 1, 2, 4, 1, 1, 2, 4, 1, 1, 2, 4, 1, 1, 2, 4};
      const Report report = simulate(scenario, nullptr);
      const double all = static_cast<double>(scenario.batch * scenario.workers) /
                         seconds(scenario.mean_gradient());
      EXPECT_GE(report.samples_per_second / all, 0.95) << strategy << ", jitter " << jitter;
    }
}

// A model takes 5 gradients; with an even schedule a gradient makes at most one more due.
TEST(Gossip, WaitsWhenItIsTooFarBehind) {
  for (const char* most : {"1", "4"}) {
    Scenario scenario =
        gossip_scenario("gossip", 8, 200, {{"max_lag", most}, {"schedule", "fixed"}});
    scenario.network = plain_network(kLayerElements * 4 / 0.5, 0ms);
    const Report report = simulate(scenario, nullptr);
    for (const WorkerReport& worker : report.workers) {
      EXPECT_LE(worker.strategy["most_lag"].get<int>(), std::stoi(most) + 1);
      EXPECT_GT(worker.figures.exposed, report.time / 10) << "it did not wait";
    }
    EXPECT_LT(averagings_per_gradient(report), 1.05);
  }
}

TEST(Gossip, IsDeterministicAndDependsOnTheSeed) {
  const auto hash = [](std::uint64_t seed) {
    return run_consensus(gossip_scenario("acid", 12, 30, {{"topology", "random-regular:4"}}), seed)
        .hash;
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

// All end within what had not been told of yet when the budget was spent.
TEST(Gossip, EndsNearTheBudgetEverywhere) {
  Scenario scenario = gossip_scenario("gossip", 16, 0, {{"topology", "exponential"}});
  scenario.time = {};
  scenario.samples = 16 * kBatch * 100;
  scenario.jitter = 0.2;
  const Report report = simulate(scenario, nullptr);
  ASSERT_TRUE(report.completed());
  EXPECT_GE(report.samples, scenario.samples);
  EXPECT_LE(report.samples, scenario.samples * 105 / 100);
  std::set<Time> ends;
  for (const WorkerReport& worker : report.workers) ends.insert(worker.figures.last_step);
  EXPECT_LT(*ends.rbegin() - *ends.begin(), 2 * kGradient) << "word of the end was slow";
}

// A run of 150 gradients with faults, to its end.
Report faulty(const std::string& topology, const std::string& faults, Duration patience = 30s) {
  Scenario scenario = gossip_scenario("acid", 8, 0, {{"topology", topology}});
  scenario.time = {};
  scenario.samples = 8 * kBatch * 150;
  scenario.patience = patience;
  scenario.faults = parse_faults(faults, 8, 1);
  const auto objective =
      make_objective({.name = "quadratic", .workers = 8, .seed = 7, .dirichlet = {}});
  return simulate(scenario, objective.get());
}

void expect_survivors_complete(const Report& report, const std::set<int>& lost) {
  EXPECT_FALSE(report.hung);
  EXPECT_TRUE(report.completed());
  for (int rank = 0; rank < 8; ++rank) {
    const WorkerReport& worker = report.workers[static_cast<std::size_t>(rank)];
    EXPECT_EQ(worker.outcome.kind,
              lost.contains(rank) ? Outcome::Kind::crashed : Outcome::Kind::completed)
        << "rank " << rank << ": " << worker.outcome.error;
    if (lost.contains(rank)) continue;
    EXPECT_EQ(worker.strategy["dead"].get<std::set<int>>(), lost);
  }
  EXPECT_EQ(report.observations.back().consensus, 0) << "replicas differ";
}

TEST(GossipUnderFaults, TwoOfEightDie) {
  const Report report = faulty("ring", "crash:rank=2,at=3s;crash:rank=0,at=5s");
  expect_survivors_complete(report, {0, 2});
  EXPECT_FALSE(report.workers[1].strategy["connected"]) << "rank 1 has lost both neighbours";
  // Those around the lost ones average with each other in their place: so samples are counted once
  // more by all, and nobody is left behind.
  EXPECT_GT(report.workers[1].strategy["averagings_per_gradient"], 0.8);
  EXPECT_LT(report.samples, 1.02 * 8 * kBatch * 150);
  const Report better = faulty("exponential", "crash:rank=2,at=3s;crash:rank=0,at=5s");
  expect_survivors_complete(better, {0, 2});
  EXPECT_TRUE(better.workers[1].strategy["connected"]);
}

TEST(GossipUnderFaults, OneVanishes) {
  for (const char* fault : {"vanish:rank=0,at=3s", "vanish:rank=5,at=3s"})
    expect_survivors_complete(faulty("ring", fault), {fault[12] - '0'});
}

TEST(GossipUnderFaults, APausedWorkerIsTakenInAgain) {
  const Report report = faulty("ring", "pause:rank=3,at=2s,for=4s");
  expect_survivors_complete(report, {});
  EXPECT_GT(report.workers[2].strategy["unanswered"].get<int>() +
                report.workers[2].strategy["suspended"].get<int>() +
                report.workers[4].strategy["unanswered"].get<int>() +
                report.workers[4].strategy["suspended"].get<int>(),
            0);
  // It has averaged with its neighbours after its return: they stood still with it for 40 of about
  // 150 gradients at most.
  EXPECT_GT(report.workers[3].strategy["averagings_per_gradient"], 0.6);
  // And the others did not wait for it.
  EXPECT_LT(report.workers[6].figures.exposed, 500ms);
}

TEST(GossipUnderFaults, APartitionHeals) {
  expect_survivors_complete(faulty("ring", "partition:ranks=0-3,at=2s,for=5s"), {});
}

TEST(GossipUnderFaults, AWorkerThatIsStartedAnewEndsByItself) {
  const Report report = faulty("ring", "restart:rank=4,at=3s,after=1s");
  EXPECT_FALSE(report.hung);
  for (const WorkerReport& worker : report.workers)
    EXPECT_NE(worker.outcome.kind, Outcome::Kind::running);
}

// A run of 4 workers with a model that is large enough for a ring, on a slow network.
Report averaging_at_the_end(Drift& drift, const std::string& faults) {
  Scenario scenario = gossip_scenario("gossip", 4, 0);
  scenario.time = {};
  scenario.samples = 4 * kBatch * 4;
  scenario.network = plain_network(1e9, 1ms);
  scenario.patience = 5s;
  scenario.most_events = 100000;
  if (!faults.empty()) scenario.faults = parse_faults(faults, 4, 1);
  return simulate(scenario, &drift);
}

// All models pass through nobody: a ring takes the time of two models, a star that of six.
TEST(Gossip, TheLastAverageTakesTheTimeOfTwoModels) {
  Drift drift(1 << 20);
  const Report report = averaging_at_the_end(drift, "");
  Time last{};
  for (const WorkerReport& worker : report.workers) last = std::max(last, worker.figures.last_step);
  const double model = 4.0 * (1 << 20) / 1e9;
  EXPECT_EQ(report.observations.back().consensus, 0);
  EXPECT_GT(seconds(report.time - (last - Time())), 1.5 * model);
  EXPECT_LT(seconds(report.time - (last - Time())), 4 * model);
}

// At whatever moment, whoever it is: those who live end with one model.
TEST(GossipUnderFaults, OneDiesDuringTheLastAverage) {
  Drift drift(1 << 17);
  const Duration end = averaging_at_the_end(drift, "").time;
  for (const int rank : {0, 2, 3})
    for (Duration before = 0ms; before < 24ms; before += 400us) {
      const Duration at = end - before;
      const Report report = averaging_at_the_end(
          drift, "crash:rank=" + std::to_string(rank) + ",at=" + std::to_string(at.count()) + "ns");
      ASSERT_FALSE(report.hung) << rank << " at " << at.count();
      ASSERT_TRUE(report.completed()) << rank << " at " << at.count();
      ASSERT_EQ(report.observations.back().consensus, 0) << rank << " at " << at.count();
    }
}

TEST(Gossip, RefusesOptionsThatItDoesNotHave) {
  EXPECT_THROW(check_strategy("gossip", {{"strength", "1"}}), ConfigError);
  EXPECT_THROW(check_strategy("acid", {{"momentum", "global"}}), ConfigError);
  EXPECT_THROW(check_strategy("acid", {{"rate", "0"}}), ConfigError);
  EXPECT_NO_THROW(check_strategy("acid", {{"strength", "0.5"}, {"schedule", "fixed"}}));
  EXPECT_THROW(prepare_strategy("gossip", {{"topology", "torus:3x5"}}, 16, 1), ConfigError);
}

}  // namespace
}  // namespace skein::sim

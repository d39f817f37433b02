// How a simulated allreduce fares when something goes wrong.
#include <gtest/gtest.h>

#include "sim/scenarios.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;
using Kind = Outcome::Kind;

constexpr Duration kIteration = 30ms;

Scenario scenario_with(int workers, const std::string& faults, std::int64_t steps = 20) {
  Scenario scenario = hand_scenario(workers, free_network(), hand_profile(1, 10ms, 20ms), steps);
  scenario.patience = 5s;
  scenario.faults = parse_faults(faults, workers, 1);
  return scenario;
}

// All but `lost` failed with an IoError that names a peer, and one of them named `lost`.
void expect_lost(const Report& report, int lost, Duration by) {
  EXPECT_FALSE(report.hung);
  EXPECT_FALSE(report.completed());
  bool named = false;
  for (int rank = 0; rank < std::ssize(report.workers); ++rank) {
    const Outcome& outcome = report.workers[static_cast<std::size_t>(rank)].outcome;
    if (rank == lost) continue;
    EXPECT_EQ(outcome.kind, Kind::failed) << rank;
    EXPECT_TRUE(outcome.io_error) << outcome.error;
    EXPECT_GE(outcome.peer, 0);
    EXPECT_NE(outcome.peer, rank);
    EXPECT_LE(outcome.at - Time(), by) << outcome.error;
    named = named || outcome.peer == lost;
  }
  EXPECT_TRUE(named);
}

TEST(SimulatedFaults, ACrashIsAnIoErrorForAllOthersAtTheNextExchange) {
  const Report report = simulate(scenario_with(4, "crash:rank=2,at=100ms"), nullptr);
  expect_lost(report, 2, 100ms + kIteration);
  EXPECT_EQ(report.workers[2].outcome.kind, Kind::crashed);
}

TEST(SimulatedFaults, AVanishedHostIsAnIoErrorByTheDeadline) {
  const Report report = simulate(scenario_with(4, "vanish:rank=2,at=100ms"), nullptr);
  expect_lost(report, 2, 100ms + kIteration + 5s);
  EXPECT_GE(report.time, 5s);
}

TEST(SimulatedFaults, APartitionThatLastsIsAnIoErrorByTheDeadline) {
  const Report report = simulate(scenario_with(2, "partition:ranks=1,at=100ms"), nullptr);
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome& outcome = report.workers[static_cast<std::size_t>(rank)].outcome;
    EXPECT_EQ(outcome.kind, Kind::failed);
    EXPECT_EQ(outcome.peer, 1 - rank) << outcome.error;
    EXPECT_LE(outcome.at - Time(), 100ms + kIteration + 5s);
  }
}

TEST(SimulatedFaults, ARestartedWorkerIsRefusedAndTheRunEnds) {
  const Report report = simulate(scenario_with(4, "restart:rank=1,at=100ms,after=1s"), nullptr);
  EXPECT_FALSE(report.hung);
  EXPECT_FALSE(report.completed());
  for (const WorkerReport& worker : report.workers) {
    EXPECT_EQ(worker.outcome.kind, Kind::failed);
    EXPECT_TRUE(worker.outcome.io_error) << worker.outcome.error;
  }
  EXPECT_EQ(report.workers[1].outcome.at, Time() + 1100ms + kIteration);
}

TEST(SimulatedFaults, APauseDelaysTheRunByExactlyItsLength) {
  for (const int workers : {1, 4}) {
    const Report report =
        simulate(scenario_with(workers, "pause:rank=0,at=105ms,for=700ms"), nullptr);
    EXPECT_TRUE(report.completed());
    EXPECT_EQ(report.time, 20 * kIteration + 700ms);
    EXPECT_EQ(report.workers[0].figures.busy, 20 * kIteration);
  }
}

TEST(SimulatedFaults, PausesThatOverlapCountOnce) {
  const Report report =
      simulate(scenario_with(2, "pause:rank=0,at=100ms,for=700ms; pause:rank=0,at=200ms,for=100ms"),
               nullptr);
  EXPECT_EQ(report.time, 20 * kIteration + 700ms);
}

// The micro-batch under way when it begins is not affected; four later ones begin while it lasts.
TEST(SimulatedFaults, ASlowWorkerSlowsTheStepsThatBeginMeanwhile) {
  const Report report =
      simulate(scenario_with(3, "slow:rank=1,at=100ms,for=1000ms,factor=10"), nullptr);
  EXPECT_TRUE(report.completed());
  EXPECT_EQ(report.time, 20 * kIteration + 4 * 9 * kIteration);
}

TEST(SimulatedFaults, APartitionThatHealsInTimeIsSurvived) {
  const Report report = simulate(scenario_with(4, "partition:ranks=0-1,at=100ms,for=2s"), nullptr);
  EXPECT_TRUE(report.completed());
  // What was under way when it began ends when it heals.
  EXPECT_EQ(report.time, 2100ms + 16 * kIteration);
}

TEST(SimulatedFaults, DelayIsFeltByEveryRingStep) {
  Scenario scenario = scenario_with(2, "delay:ranks=1,at=31ms,for=5ms,extra=100ms", 2);
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed());
  EXPECT_EQ(report.time, 2 * kIteration);  // over before anything travels
  scenario = scenario_with(2, "delay:ranks=1,at=35ms,extra=100ms", 2);
  // The ring's two steps, and the one message of flush().
  EXPECT_EQ(simulate(scenario, nullptr).time, 2 * kIteration + 3 * 100ms);
}

TEST(SimulatedFaults, AnythingAtRandomEndsWithoutAHang) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Scenario scenario = scenario_with(5, "", 30);
    scenario.network = plain_network(kByteAtNanosecond, 50us);
    scenario.patience = 500ms;
    scenario.faults = parse_faults("random:count=4,within=1s", 5, seed);
    const Report report = simulate(scenario, nullptr);
    EXPECT_FALSE(report.hung) << describe(scenario.faults);
  }
}

}  // namespace
}  // namespace skein::sim

// The time of an iteration against closed forms.
#include <gtest/gtest.h>

#include "sim/scenarios.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLatency = 20us;
const Network kNetwork = plain_network(kByteAtNanosecond, kLatency);

TEST(IterationTime, WithoutOverlapIsTheSumOfAllParts) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(1, 10ms, 20ms, 3ms), 5);
  expect_iterations(simulate(scenario, nullptr), 5,
                    10ms + 20ms + ring_time(4, kLayerElements, kLatency) + 3ms);
}

TEST(IterationTime, WithOverlapSwitchedOffSendsAfterBackward) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 10ms, 20ms), 5);
  scenario.strategy_settings = {{"overlap", "false"}, {"fusion", "none"}};
  expect_iterations(simulate(scenario, nullptr), 5,
                    3 * 30ms + 3 * ring_time(4, kLayerElements, kLatency));
}

TEST(IterationTime, WithOverlapShowsTheLastBucketOnly) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 10ms, 20ms), 5);
  scenario.strategy_settings = {{"fusion", "none"}};
  expect_iterations(simulate(scenario, nullptr), 5,
                    3 * 30ms + ring_time(4, kLayerElements, kLatency));
}

TEST(IterationTime, BoundByTheNetworkIsTheFirstBackwardAndAllBuckets) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 1ms, 10us), 5);
  scenario.strategy_settings = {{"fusion", "none"}};
  // The step table's 80 bytes pass beside the first bucket.
  expect_iterations(simulate(scenario, nullptr), 5,
                    3 * 1ms + 10us + 3 * ring_time(4, kLayerElements, kLatency) + 80ns);
}

TEST(IterationTime, OnAFreeNetworkIsTheComputation) {
  for (const int workers : {1, 2, 5})
    expect_iterations(
        simulate(hand_scenario(workers, free_network(), hand_profile(2, 10ms, 20ms, 4ms), 3),
                 nullptr),
        3, 2 * 30ms + 4ms);
}

TEST(IterationTime, GrowsWithTheBatchAndWithAccumulation) {
  Scenario scenario = hand_scenario(2, free_network(), hand_profile(1, 10ms, 20ms, 4ms), 1);
  scenario.batch = 2 * kBatch;
  scenario.accumulate = 3;
  scenario.samples = 4 * scenario.batch * 3 * 2;
  const Report report = simulate(scenario, nullptr);
  expect_iterations(report, 4, 3 * 60ms + 4ms);
  EXPECT_EQ(report.workers[0].figures.micro_batches, 12);
  EXPECT_EQ(report.samples, scenario.samples);
}

TEST(IterationTime, TheSlowestWorkerDecides) {
  Scenario scenario = hand_scenario(3, free_network(), hand_profile(1, 10ms, 20ms, 3ms), 10);
  scenario.speeds = {1, 0.5, 2};
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed());
  EXPECT_EQ(report.time, 10 * 66ms);
  EXPECT_DOUBLE_EQ(report.samples_per_second, 3 * kBatch / 66e-3);
}

// What is not busy is exposed.
TEST(IterationTime, BusyTimesAreInProportionToSpeeds) {
  Scenario scenario = hand_scenario(3, free_network(), hand_profile(1, 10ms, 20ms, 3ms), 10);
  scenario.speeds = {1, 0.5, 2};
  const Report report = simulate(scenario, nullptr);
  EXPECT_EQ(report.workers[0].figures.busy, 10 * 33ms);
  EXPECT_EQ(report.workers[1].figures.busy, 10 * 66ms);
  EXPECT_EQ(report.workers[2].figures.busy, 10 * 16500us);
  EXPECT_EQ(report.workers[1].figures.exposed, 0ms);
  EXPECT_EQ(report.workers[2].figures.samples, 10 * kBatch);
}

TEST(IterationTime, ExposedIsWhatTheNetworkAddsToTheComputation) {
  const Report report =
      simulate(hand_scenario(4, kNetwork, hand_profile(1, 10ms, 20ms, 3ms), 5), nullptr);
  for (const WorkerReport& worker : report.workers) {
    EXPECT_EQ(worker.figures.busy, 5 * 33ms);
    EXPECT_EQ(worker.figures.exposed, 5 * ring_time(4, kLayerElements, kLatency));
  }
}

TEST(IterationTime, BytesAreThoseOfTheRingAndOfTheStepTable) {
  const Report report =
      simulate(hand_scenario(4, kNetwork, hand_profile(2, 10ms, 20ms), 5), nullptr);
  constexpr std::uint64_t ring = 2 * 3 * (2 * kLayerElements * 4 / 4);
  constexpr std::uint64_t table = 2 * (4 * 5 * 4);  // two doublings, four rows of five floats
  for (const WorkerReport& worker : report.workers)
    EXPECT_EQ(worker.bytes_sent, 5 * (ring + table));
}

TEST(IterationTime, AloneNothingIsSent) {
  const Report report = simulate(
      hand_scenario(1, plain_network(1, 1h), hand_profile(2, 10ms, 20ms, 4ms), 3), nullptr);
  expect_iterations(report, 3, 64ms);
  EXPECT_EQ(report.workers[0].bytes_sent, 0u);
  EXPECT_EQ(report.workers[0].figures.exposed, 0ms);
}

TEST(IterationTime, TheMeanGradientFollowsTheSpeeds) {
  Scenario scenario = hand_scenario(4, free_network(), hand_profile(1, 10ms, 20ms), 1);
  EXPECT_EQ(scenario.mean_gradient(), 30ms);
  scenario.batch = 2 * kBatch;
  EXPECT_EQ(scenario.mean_gradient(), 60ms);
  scenario.speeds = {1, 1, 2, 4};
  EXPECT_EQ(scenario.mean_gradient(), 30ms);
}

}  // namespace
}  // namespace skein::sim

// The time of an iteration against closed forms.
#include <gtest/gtest.h>

#include "sim/scenarios.h"
#include "strategy/step_table.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLatency = 20us;
const Network kNetwork = plain_network(kByteAtNanosecond, kLatency);
constexpr Duration kTable{StepTable::kBytes};  // at a byte a nanosecond

// Of three buckets whose sums follow each other: the last message of each has a latency before it,
// in which the first of the next leaves.
const Duration kThreeInARow = 3 * ring_time(4, kLayerElements, kLatency) - 2 * kLatency;

TEST(IterationTime, WithoutOverlapIsTheSumOfAllParts) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(1, 10ms, 20ms, 3ms), 5);
  expect_iterations(simulate(scenario, nullptr), 5,
                    10ms + 20ms + ring_time(4, kLayerElements, kLatency) + 3ms);
}

// The step table passes with the first bucket, in two doublings, since it waits for the true number
// of samples.
TEST(IterationTime, WithOverlapSwitchedOffSendsAfterBackward) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 10ms, 20ms), 5);
  scenario.strategy_settings = {{"overlap", "false"}, {"fusion", "none"}};
  expect_iterations(simulate(scenario, nullptr), 5,
                    3 * 30ms + kThreeInARow + 2 * Duration(StepTable::kBytes));
}

TEST(IterationTime, WithOverlapShowsTheLastBucketOnly) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 10ms, 20ms), 5);
  scenario.strategy_settings = {{"fusion", "none"}};
  expect_iterations(simulate(scenario, nullptr), 5,
                    3 * 30ms + ring_time(4, kLayerElements, kLatency));
}

// Of a bucket of 4 parts: 3 messages of half a part, straight to whom they are for.
constexpr Duration kHalfPass = 3 * Duration(kLayerElements / 4 * 2) + kLatency;

TEST(IterationTime, OfHalfTheBytesHasHalfTheirTime) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(1, 10ms, 20ms, 3ms), 5);
  const Report full = simulate(scenario, nullptr);
  scenario.strategy_settings = {{"wire", "bf16"}};
  const Report half = simulate(scenario, nullptr);
  expect_iterations(half, 5, 10ms + 20ms + 2 * kHalfPass + 3ms);
  const std::uint64_t saved = full.workers[1].bytes_sent - half.workers[1].bytes_sent;
  EXPECT_EQ(saved, 5 * 2 * 3 * kLayerElements / 4 * 2);
}

// The exact model is gathered only at the end.
TEST(IterationTime, OfHalfTheBytesUnderDear) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(1, 10us, 20us, 4us), 5);
  scenario.strategy = "dear";
  scenario.strategy_settings = {{"wire", "bf16"}, {"fusion", "none"}};
  const Report report = simulate(scenario, nullptr);
  ASSERT_TRUE(report.completed());
  // A reduce-scatter, an update of a quarter and an all-gather, none of which anything hides; the
  // step table passes beside the first.
  for (const WorkerReport& worker : report.workers)
    for (std::size_t i = 1; i < 5; ++i)
      EXPECT_EQ(worker.figures.iterations[i], 2 * kHalfPass + 10us + 20us + 1us + kTable) << i;
}

TEST(IterationTime, BoundByTheNetworkIsTheFirstBackwardAndAllBuckets) {
  Scenario scenario = hand_scenario(4, kNetwork, hand_profile(3, 1ms, 10us), 5);
  scenario.strategy_settings = {{"fusion", "none"}};
  // The step table passes beside the first bucket.
  expect_iterations(simulate(scenario, nullptr), 5, 3 * 1ms + 10us + kThreeInARow + kTable);
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
  constexpr std::uint64_t table = 2 * StepTable::kBytes;  // two doublings
  for (const WorkerReport& worker : report.workers)
    EXPECT_EQ(worker.bytes_sent, 5 * (ring + table) + table);  // the last by flush()
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

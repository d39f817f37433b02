// A whole simulated run: what it depends on, what it learns, how it ends.
#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <fstream>

#include "sim/objectives/kinds.h"
#include "sim/objectives/objectives.h"
#include "sim/scenarios.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kGoldenTime{1043795952};
constexpr std::uint64_t kGoldenHash = 6084049877981419162u;

// Everything random at once.
Scenario restless_scenario(std::uint64_t seed) {
  Network network = parse_network("10gbe:jitter=100us");
  network.workers_per_host = 2;
  Scenario scenario = hand_scenario(8, network, hand_profile(3, 2ms, 4ms, 1ms), 20);
  scenario.seed = seed;
  scenario.jitter = 0.2;
  scenario.slowdowns = {.every = 100ms, .lasting = 20ms, .factor = 3};
  scenario.speeds = {1, 1, 2, 2, 1, 1, 0.5, 1};
  scenario.faults = parse_faults("random:count=3,within=100ms,kinds=pause+delay+slow", 8, seed);
  return scenario;
}

TEST(Reproducibility, TheSameSeedGivesTheSameRunAndAnotherSeedAnother) {
  const Report first = simulate(restless_scenario(1), nullptr);
  const Report again = simulate(restless_scenario(1), nullptr);
  const Report other = simulate(restless_scenario(2), nullptr);
  EXPECT_TRUE(first.completed());
  EXPECT_EQ(first.hash, again.hash);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.time, again.time);
  EXPECT_NE(first.hash, other.hash);
  EXPECT_NE(first.time, other.time);
}

// A machine, a compiler or a build type on which this fails does not give the numbers of others.
// Whoever changes what a simulated run does, or in what order, changes the hash.
TEST(Reproducibility, TheHashIsThatOfEveryOtherMachine) {
  const Report report = simulate(restless_scenario(1), nullptr);
  EXPECT_EQ(report.time, kGoldenTime);
  EXPECT_EQ(report.hash, kGoldenHash);
}

TEST(Reproducibility, TracesDoNotChangeTheRun) {
  class Counter final : public Trace {
   public:
    void span(Lane, std::string_view, Time begin, Time end) override {
      EXPECT_LE(begin, end);
      ++count;
    }
    int count = 0;
  } counter;
  const std::function<Trace&(int)> trace_of = [&](int) -> Trace& { return counter; };
  const Report traced = simulate(restless_scenario(1), nullptr, trace_of, [](const Moment&) {});
  EXPECT_EQ(traced.hash, simulate(restless_scenario(1), nullptr).hash);
  EXPECT_GT(counter.count, 8 * 20 * 3);
}

ObjectiveOptions quadratic_options(int workers) {
  ObjectiveOptions options;
  options.name = "quadratic";
  options.workers = workers;
  options.seed = 3;
  options.dimension = 32;
  options.condition = 10;
  options.noise = 0;
  return options;
}

Scenario quadratic_scenario(int workers, std::int64_t steps) {
  Scenario scenario = hand_scenario(workers, plain_network(kByteAtNanosecond, 20us),
                                    hand_profile(1, 1ms, 2ms), steps);
  scenario.learning_rate = {0.5, Schedule{}};
  scenario.observe_samples = workers * kBatch;
  return scenario;
}

// The loss after each of `steps` steps of gradient descent from 0, worked out per eigenvalue.
std::vector<double> predicted_losses(const ObjectiveOptions& options, double rate, int steps) {
  const auto objective = make_objective(options);
  const auto replica = objective->replica(0);
  replica->gradient(1);
  const auto spectrum = geometric_spectrum(options.dimension, options.condition);
  std::vector<double> losses;
  for (int step = 0; step <= steps; ++step) {
    double loss = 0;
    for (std::size_t i = 0; i < spectrum.size(); ++i) {
      double distance = replica->arena().gradients().host()[i] / spectrum[i];
      for (int k = 0; k < step; ++k) distance *= 1 - rate * spectrum[i];
      loss += 0.5 * spectrum[i] * distance * distance;
    }
    losses.push_back(loss);
  }
  return losses;
}

TEST(Learning, AllreduceDescendsAsOneProcessWouldAndReplicasAreBitEqual) {
  const auto objective = make_objective(quadratic_options(4));
  const Report report = simulate(quadratic_scenario(4, 30), objective.get());
  const auto expected = predicted_losses(quadratic_options(4), 0.5, 30);
  ASSERT_TRUE(report.completed());
  ASSERT_EQ(report.observations.size(), expected.size() + 1);  // once more after flush()
  EXPECT_EQ(report.observations.back().samples, 30 * 4 * kBatch);
  EXPECT_EQ(report.observations.back().quality->loss, report.observations[30].quality->loss);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    const Observation& seen = report.observations[step];
    EXPECT_EQ(seen.samples, static_cast<std::int64_t>(step) * 4 * kBatch);
    EXPECT_EQ(seen.consensus, 0);
    ASSERT_TRUE(seen.quality);
    EXPECT_NEAR(seen.quality->loss / expected[step], 1, 1e-4) << step;  // parameters are floats
  }
}

TEST(Learning, TheObjectiveDoesNotChangeTheTime) {
  const auto objective = make_objective(quadratic_options(4));
  Scenario scenario = quadratic_scenario(4, 5);
  scenario.profile.layers[0].parameters = {32};
  const Report with = simulate(scenario, objective.get());
  const Report without = simulate(scenario, nullptr);
  EXPECT_EQ(with.time, without.time);
  EXPECT_EQ(with.hash, without.hash);
}

TEST(TheEnd, IsTheTargetWhereItComesFirst) {
  const auto expected = predicted_losses(quadratic_options(4), 0.5, 10);
  Scenario scenario = quadratic_scenario(4, 1000);
  scenario.target_loss = (expected[6] + expected[7]) / 2;
  const auto objective = make_objective(quadratic_options(4));
  const Report report = simulate(scenario, objective.get());
  ASSERT_TRUE(report.target);
  EXPECT_EQ(*report.target, report.time);
  EXPECT_EQ(report.observations.back().samples, kBatch * 4 * 7);
  EXPECT_LE(report.observations.back().quality->loss, scenario.target_loss);
  // The one that reached it, and the one at the end, when no worker has anything under way.
  ASSERT_GE(report.observations.size(), 2u);
  const Observation& reached = report.observations[report.observations.size() - 2];
  EXPECT_EQ(reached.time, *report.target);
  EXPECT_LE(reached.quality->loss, scenario.target_loss);
}

TEST(TheEnd, IsTheTimeWhereItComesFirst) {
  Scenario scenario = hand_scenario(2, free_network(), hand_profile(1, 10ms, 20ms), 1);
  scenario.samples = 0;
  scenario.time = 100ms;
  const Report report = simulate(scenario, nullptr);
  EXPECT_EQ(report.time, 100ms);
  EXPECT_EQ(report.samples, kBatch * 2 * 3);
  EXPECT_FALSE(report.hung);
  for (const WorkerReport& worker : report.workers)
    EXPECT_EQ(worker.outcome.kind, Outcome::Kind::running);
}

TEST(TheEnd, IsTheSampleThatWasAskedForWhenStepsDoNotDivideIt) {
  Scenario scenario = hand_scenario(2, free_network(), hand_profile(1, 10ms, 20ms), 1);
  scenario.samples = 2 * kBatch + 6;
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed());
  EXPECT_EQ(report.samples, 2 * kBatch + 6);
  EXPECT_EQ(report.workers[1].figures.samples, kBatch + 3);
  EXPECT_EQ(report.time, 30ms + 11250us);
}

std::int64_t peak_memory_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      std::int64_t kb = 0;
      status >> kb;
      return kb;
    }
  return -1;
}

// 64 models of 1.3 GB each would not fit.
TEST(Memory, TimingAloneNeedsNoMemoryForModels) {
  const Profile profile = find_profile("bert-large");
  Scenario scenario = hand_scenario(64, parse_network("10gbe:chunk=none"), profile, 1);
  scenario.batch = profile.batch;
  scenario.samples = 64 * profile.batch;
  scenario.strategy_settings = {{"fusion", "400MB"}};
  const std::int64_t before = peak_memory_kb();
  ASSERT_GT(before, 0);
  EXPECT_TRUE(simulate(scenario, nullptr).completed());
  EXPECT_LT(peak_memory_kb() - before, 200 * 1024);
}

}  // namespace
}  // namespace skein::sim

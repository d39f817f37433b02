// Patience is for silence: what takes long, and goes on, does not end a run.
#include <gtest/gtest.h>

#include "sim/scenarios.h"
#include "sim/simulation.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

Scenario scenario_of(const std::string& strategy, int workers, const Profile& profile,
                     std::int64_t steps) {
  Scenario scenario = hand_scenario(workers, parse_network("1gbe"), profile, steps);
  scenario.strategy = strategy;
  scenario.most_events = 50'000'000;
  return scenario;
}

Profile two_billion_parameters() {
  Profile profile = hand_profile(40, 10ms, 20ms);
  for (Layer& layer : profile.layers) layer.parameters = {50'000'000};
  return profile;
}

class Patience : public testing::TestWithParam<std::string> {};

// One sum of the model takes 68 s and more.
TEST_P(Patience, OutlastsALargeModelOnASlowNetwork) {
  for (const int workers : {2, 4}) {
    Scenario scenario = scenario_of(GetParam(), workers, two_billion_parameters(), 3);
    if (GetParam() == "local") scenario.strategy_settings["period"] = "1";
    const Report report = simulate(scenario, nullptr);
    EXPECT_TRUE(report.completed()) << workers << " workers: " << report.workers[0].outcome.error;
    EXPECT_GT(report.time, scenario.patience);
  }
}

// And no longer, though the others still compute for a while. Who notices first says who it is.
TEST_P(Patience, EndsWithTheSilenceOfAWorkerThatStands) {
  Scenario scenario = scenario_of(GetParam(), 4, hand_profile(4, 25ms, 50ms), 4000);
  scenario.faults = parse_faults("pause:rank=2,at=20s,for=100000s", 4, 1);
  const Report report = simulate(scenario, nullptr);
  EXPECT_FALSE(report.completed());
  Outcome first;
  first.at = kNever;
  for (int rank : {0, 1, 3}) {
    const Outcome& outcome = report.workers[static_cast<std::size_t>(rank)].outcome;
    EXPECT_TRUE(outcome.io_error) << outcome.error;
    EXPECT_LT(outcome.at - Time(), 20s + scenario.patience + 15s) << outcome.error;
    if (outcome.at < first.at) first = outcome;
  }
  EXPECT_EQ(first.peer, 2) << first.error;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Patience,
                         testing::Values("allreduce", "dear", "local", "lasgd", "abs"),
                         [](const auto& info) { return info.param; });

class LongPeriods : public Patience {};

// The fast workers wait a minute for the slow one, and for each other behind it; nobody takes
// longer than 12 s for a step.
TEST_P(LongPeriods, OutlastAWorkerThatIsMerelySlow) {
  Scenario scenario = scenario_of(GetParam(), 4, hand_profile(4, 50ms, 100ms), 20);
  scenario.speeds = {1, 1, 1, 0.05};
  scenario.strategy_settings["period"] = "5";
  scenario.patience = 30s;
  const Report report = simulate(scenario, nullptr);
  EXPECT_TRUE(report.completed()) << report.workers[0].outcome.error;
}

INSTANTIATE_TEST_SUITE_P(Strategies, LongPeriods, testing::Values("local", "lasgd"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::sim

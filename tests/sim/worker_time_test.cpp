// What virtual workers do with their time: all of it, each moment once.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "sim/scenarios.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

struct OwnSpans final : Trace {
  struct Span {
    Time begin, end;
    Lane lane;
  };
  void span(Lane lane, std::string_view, Time begin, Time end) override {
    sums[lane] += end - begin;
    if (lane == Lane::forward || lane == Lane::backward || lane == Lane::update ||
        lane == Lane::wait)
      spans.push_back({begin, end, lane});
  }
  std::vector<Span> spans;
  std::map<Lane, Duration> sums;
};

// Unequal workers that update for long, on a network that is too slow for the model.
Scenario slow_and_unequal(const std::string& strategy) {
  Scenario scenario =
      hand_scenario(4, plain_network(0.2e9, 50us), hand_profile(5, 400us, 800us, 1ms), 20);
  scenario.strategy = strategy;
  scenario.speeds = {1, 1, 1.5, 2};
  scenario.jitter = 0.2;
  return scenario;
}

class WorkerTimeOf : public testing::TestWithParam<const char*> {};

TEST_P(WorkerTimeOf, AStrategySumsToTheWholeOfItsSteps) {
  Scenario scenario = slow_and_unequal(GetParam());
  std::vector<OwnSpans> traces(4);
  const std::function<Trace&(int)> trace_of = [&](int rank) -> Trace& {
    return traces[static_cast<std::size_t>(rank)];
  };
  const Report report = simulate(scenario, nullptr, trace_of, [](const Moment&) {});
  ASSERT_TRUE(report.completed());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE(rank);
    const WorkerFigures& figures = report.workers[rank].figures;
    auto& spans = traces[rank].spans;
    std::sort(spans.begin(), spans.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    Time end = figures.first_step;
    for (const auto& span : spans) {
      if (span.begin >= figures.last_step) break;  // the flush
      ASSERT_EQ(span.begin, end) << "lane " << static_cast<int>(span.lane);
      end = span.end;
    }
    EXPECT_EQ(end, figures.last_step);
    auto& sums = traces[rank].sums;
    EXPECT_EQ(figures.exposed, sums[Lane::wait]);
    EXPECT_EQ(figures.busy, sums[Lane::forward] + sums[Lane::backward] + sums[Lane::update]);
    EXPECT_EQ(figures.busy + figures.exposed, figures.last_step - figures.first_step);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, WorkerTimeOf,
                         testing::Values("allreduce", "dear", "abs", "local", "lasgd", "gossip",
                                         "acid"),
                         [](const auto& each) { return std::string(each.param); });

TEST(WorkerTimeOfDear, IsWaitingWhereForwardWaitsForParameters) {
  std::vector<OwnSpans> traces(4);
  const std::function<Trace&(int)> trace_of = [&](int rank) -> Trace& {
    return traces[static_cast<std::size_t>(rank)];
  };
  Scenario scenario =
      hand_scenario(4, plain_network(0.02e9, 50us), hand_profile(5, 400us, 800us), 10);
  scenario.strategy = "dear";
  scenario.strategy_settings = {{"fusion", "none"}};
  const Report report = simulate(scenario, nullptr, trace_of, [](const Moment&) {});
  ASSERT_TRUE(report.completed());
  for (OwnSpans& trace : traces) {
    EXPECT_EQ(trace.sums[Lane::forward], 10 * 5 * 400us);
    EXPECT_EQ(trace.sums[Lane::backward], 10 * 5 * 800us);
    EXPECT_GT(trace.sums[Lane::wait], 10 * 5 * 1200us) << "the network is slower than that";
  }
}

}  // namespace
}  // namespace skein::sim

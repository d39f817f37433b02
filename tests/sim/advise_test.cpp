// `skein advise` on virtual clusters: whole answers, their map and its picture.
#include <gtest/gtest.h>

#include "advise/cluster.h"
#include "advise/map.h"
#include "advise/map_svg.h"
#include "advise/predict.h"
#include "sim/simulation.h"

namespace skein::advise {
namespace {

sim::Scenario cluster_of(int workers, const std::string& network, std::vector<double> speeds = {}) {
  sim::Scenario cluster;
  cluster.workers = workers;
  cluster.network = sim::parse_network(network);
  cluster.profile = sim::find_profile("resnet50");
  cluster.batch = cluster.profile.batch;
  cluster.speeds = std::move(speeds);
  return cluster;
}

const Tell kSilent = [](const std::string&) {};

TEST(Advise, PredictionsAreWhatASimulationSays) {
  sim::Scenario cluster = cluster_of(4, "10gbe");
  const Candidate candidate = predict(cluster, {"allreduce", {{"fusion", "25MB"}}}, 8);
  cluster.strategy = "allreduce";
  cluster.strategy_settings = {{"fusion", "25MB"}};
  cluster.samples = 8 * 4 * 64;
  const sim::Report report = sim::simulate(cluster, nullptr);
  // Its steps are alike, and workers end within a message of each other.
  EXPECT_NEAR(candidate.samples_per_second, report.samples_per_second,
              1e-3 * report.samples_per_second);
  EXPECT_EQ(candidate.events, report.events);
  EXPECT_GT(candidate.bytes_per_step, 25'557'032 * 4);
}

TEST(Advise, ASlowUnequalClusterGetsOneThatDoesNotWaitAndAFastEqualOneASynchronousOne) {
  const Advice slow =
      make_advice(cluster_of(4, "1gbe", {1, 1, 2, 4}), {.steps = 16, .changes = false}, kSilent);
  EXPECT_FALSE(is_synchronous(slow.recommended().setup)) << slow.recommended().setup.strategy;
  EXPECT_GT(slow.recommended().of_summed_speed, 0.9);
  const Advice fast =
      make_advice(cluster_of(8, "100gib"), {.steps = 8, .quick = true, .changes = false}, kSilent);
  EXPECT_TRUE(is_synchronous(fast.recommended().setup)) << fast.recommended().setup.strategy;
}

TEST(Advise, WhatItSaysChangesTheAnswerDoesChangeIt) {
  const sim::Scenario cluster = cluster_of(2, "link:bandwidth=20gbit");
  const Effort effort{.steps = 8, .again = 8, .quick = true};
  const Advice advice = make_advice(cluster, effort, kSilent);
  ASSERT_FALSE(advice.slower.empty());
  const Change& change = advice.slower.front();
  EXPECT_EQ(change.before, answer_of(advice.recommended().setup));
  const auto there = try_again(with_bandwidth(cluster, change.at), advice.candidates, effort);
  EXPECT_EQ(answer_of(there[choose(there, {}).recommended].setup), change.after);
  const auto before =
      try_again(with_bandwidth(cluster, change.at * 1.06), advice.candidates, effort);
  EXPECT_EQ(answer_of(before[choose(before, {}).recommended].setup), change.before);
}

// Simulations of one step may choose another strategy than those of sixteen, near a boundary.
TEST(Advise, ChangesAreOfTheAnswerThatIsRecommendedAlsoWhereShorterSimulationsDiffer) {
  const Effort effort{.steps = 16, .again = 1, .quick = true};
  Effort without = effort;
  without.changes = false;
  int differed = 0;
  for (const char* network : {"link:bandwidth=3gbit", "link:bandwidth=6gbit",
                              "link:bandwidth=12gbit", "link:bandwidth=20gbit"}) {
    const sim::Scenario cluster = cluster_of(2, network, {1, 1.4});
    const Advice plain = make_advice(cluster, without, kSilent);
    EXPECT_TRUE(plain.chosen_again.empty());
    const std::string answer = answer_of(plain.recommended().setup);
    const auto shorter = try_again(cluster, plain.candidates, effort);
    if (answer_of(shorter[choose(shorter, {}).recommended].setup) == answer) continue;
    ++differed;
    const Advice advice = make_advice(cluster, effort, kSilent);
    EXPECT_EQ(advice.chosen_again, answer) << network;  // by longer ones
    for (const auto* walk :
         {&advice.faster, &advice.slower, &advice.less_equal, &advice.more_equal})
      if (!walk->empty()) {
        EXPECT_EQ(walk->front().before, answer) << network;
      }
  }
  EXPECT_GT(differed, 0);
}

TEST(Advise, WhatIsLeftOutWouldNotHaveBeenChosen) {
  const Effort effort{.steps = 8, .again = 8, .quick = true, .changes = false};
  const auto candidates = make_advice(cluster_of(3, "1gbe", {1, 2, 3}), effort, kSilent).candidates;
  std::size_t left_out = 0;
  for (const double bandwidth : {1e7, 1e9, 2e9, 1e10}) {
    const sim::Scenario cluster = with_bandwidth(cluster_of(3, "1gbe"), bandwidth);
    const auto some = try_again(cluster, candidates, effort);
    std::vector<Candidate> all;
    for (const Candidate& each : candidates) {
      advise::Setup setup = each.setup;
      setup.settings.erase("balance");
      all.push_back(predict(cluster, setup, effort.again));
    }
    EXPECT_EQ(some[choose(some, {}).recommended].setup, all[choose(all, {}).recommended].setup);
    left_out += all.size() - some.size();
  }
  EXPECT_GT(left_out, 10u);
}

TEST(Advise, TheMapHasAnAnswerInEveryCellAndThePictureShowsEach) {
  Advice advice;
  advice.cluster = cluster_of(2, "1gbe");
  advice.cluster.profile.name = "a<b & \"c\"";
  const Effort effort{.steps = 8, .again = 8, .quick = true, .changes = false};
  for (const char* strategy : {"allreduce", "dear", "lasgd"})
    advice.candidates.push_back(predict(advice.cluster, {strategy, {}}, effort.steps));
  advice.choice = choose(advice.candidates, {});
  const Map map = make_map(advice, effort, kSilent);
  ASSERT_EQ(map.cells.size(), map.bandwidths.size() * map.ratios.size());
  EXPECT_EQ(map.at(map.ratios.size() - 1, 0).setup.strategy, "lasgd");  // slow and unequal
  EXPECT_TRUE(is_synchronous(map.at(0, map.bandwidths.size() - 1).setup));
  EXPECT_GT(map.at(map.ratios.size() - 1, 0).gain, 2);

  const std::string svg = map_svg(map, advice);
  std::size_t cells = 0;
  for (std::size_t at = svg.find("class=\"cell\""); at != std::string::npos;
       at = svg.find("class=\"cell\"", at + 1))
    ++cells;
  EXPECT_EQ(cells, map.cells.size());
  // Well-formed: every tag is closed in turn, and what the user named is escaped.
  EXPECT_NE(svg.find("a&lt;b &amp; "), std::string::npos);
  std::vector<std::string> open;
  for (std::size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    EXPECT_EQ(tag.find('<'), std::string::npos);
    if (tag.ends_with("/")) continue;
    if (!tag.starts_with("/")) {
      open.push_back(tag.substr(0, tag.find(' ')));
    } else {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    }
  }
  EXPECT_TRUE(open.empty());
}

}  // namespace
}  // namespace skein::advise

// The rules of `skein advise` on made-up figures: what is searched, what is chosen, where answers
// change, and what is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "advise/changes.h"
#include "advise/choice.h"
#include "advise/cluster.h"
#include "advise/search.h"
#include "advise/sentences.h"
#include "strategy/registry.h"

namespace skein::advise {
namespace {

Candidate made_up(const std::string& strategy, double samples_per_second,
                  std::map<std::string, std::string> settings = {}) {
  Candidate candidate;
  candidate.setup = {strategy, std::move(settings)};
  candidate.samples_per_second = samples_per_second;
  candidate.of_summed_speed = samples_per_second / 1000;
  return candidate;
}

std::string chosen(const std::vector<Candidate>& candidates, const Rule& rule = {}) {
  return answer_of(candidates[choose(candidates, rule).recommended].setup);
}

TEST(AdviseChoice, TakesTheOneThatLosesLeastAmongNearlyEqualOnes) {
  // Each is faster than the one before it, but by less than its price.
  std::vector<Candidate> candidates{made_up("allreduce", 1000), made_up("dear", 1009)};
  EXPECT_EQ(chosen(candidates), "allreduce");
  candidates.push_back(made_up("dear", 1039, {{"wire", "bf16"}}));
  EXPECT_EQ(chosen(candidates), "allreduce");
  candidates.push_back(made_up("lasgd", 1059));
  candidates.push_back(made_up("local", 1069));
  candidates.push_back(made_up("abs", 1069));
  candidates.push_back(made_up("gossip", 1089));
  candidates.push_back(made_up("acid", 1089));
  EXPECT_EQ(chosen(candidates), "allreduce");
  for (const std::size_t gained : {1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
    auto faster = candidates;
    faster[gained].samples_per_second += 3;
    EXPECT_EQ(chosen(faster), answer_of(candidates[gained].setup));
  }
}

TEST(AdviseChoice, NeverGivesAwayMoreThanItsLargestPrice) {
  // Whatever the figures are, the fastest is at most 9 % faster with the usual margin.
  for (unsigned seed = 1; seed <= 200; ++seed) {
    std::vector<Candidate> candidates;
    unsigned state = seed * 2654435761u;
    for (const std::string& strategy : strategy_names()) {
      state = state * 1664525u + 1013904223u;
      candidates.push_back(made_up(strategy, 900 + static_cast<double>(state >> 24)));
    }
    const Choice choice = choose(candidates, {});
    EXPECT_LE(candidates[choice.fastest].samples_per_second,
              1.09001 * candidates[choice.recommended].samples_per_second);
    EXPECT_NE(candidates[choice.runner_up].setup.strategy,
              candidates[choice.recommended].setup.strategy);
  }
}

TEST(AdviseChoice, TheMarginIsWhatStrategiesThatAreNotSynchronousMustGain) {
  const std::vector<Candidate> candidates{made_up("allreduce", 1000), made_up("lasgd", 1250)};
  EXPECT_EQ(chosen(candidates, {.margin = 20}), "lasgd");
  EXPECT_EQ(chosen(candidates, {.margin = 30}), "allreduce");
}

TEST(AdviseChoice, ARunThatFailedIsNeverRecommended) {
  std::vector<Candidate> candidates{made_up("allreduce", 0), made_up("lasgd", 3)};
  candidates[0].error = "rank 1 was silent";
  EXPECT_EQ(chosen(candidates), "lasgd");
}

TEST(AdviseSearch, TakesALaterValueOnlyIfItGainsItsMargin) {
  int calls = 0;
  const auto with_gain = [&](double gain) -> Predict {
    return [&calls, gain](const advise::Setup& setup) {
      ++calls;
      Candidate out = made_up(setup.strategy, 100);
      out.setup = setup;
      if (setup.settings.at("period") == "16") out.samples_per_second = 100 * gain;
      return out;
    };
  };
  const std::vector<Axis> axes{{"period", {"8", "16"}, 0.10}};
  EXPECT_EQ(search({"local", {}}, axes, with_gain(1.09)).setup.settings.at("period"), "8");
  EXPECT_EQ(search({"local", {}}, axes, with_gain(1.11)).setup.settings.at("period"), "16");
  EXPECT_EQ(calls, 4);
}

TEST(AdviseSearch, ChangesOneSettingAfterTheOtherAndKeepsWhatItFound) {
  std::vector<advise::Setup> asked;
  const Predict predict = [&](const advise::Setup& setup) {
    asked.push_back(setup);
    Candidate out = made_up(setup.strategy, 100);
    out.setup = setup;
    if (setup.settings.at("fusion") == "4MB") out.samples_per_second += 20;
    if (setup.settings.contains("balance")) out.samples_per_second += 30;
    return out;
  };
  const Candidate best = search(
      {"dear", {}}, {{"fusion", {"25MB", "4MB", "1MB"}}, {"balance", {"", "true"}}}, predict);
  EXPECT_EQ(best.setup.settings,
            (std::map<std::string, std::string>{{"balance", "true"}, {"fusion", "4MB"}}));
  EXPECT_EQ(best.samples_per_second, 150);
  EXPECT_EQ(asked.size(), 4u);  // not the six of the full product
}

TEST(AdviseSearch, EveryStrategyIsACandidateWithSettingsThatItTakes) {
  Space space{.workers = 8, .model_bytes = 1e8, .unequal = true, .levels = true};
  const Predict predict = [](const advise::Setup& setup) {
    check_strategy(setup.strategy, setup.settings);  // throws
    Candidate out = made_up(setup.strategy, 100);
    out.setup = setup;
    return out;
  };
  std::set<std::string> seen;
  for (const Candidate& each : search_all(space, false, predict)) seen.insert(each.setup.strategy);
  const auto names = strategy_names();
  EXPECT_EQ(seen, std::set<std::string>(names.begin(), names.end()));
}

TEST(AdviseChanges, AreFoundWithinThePrecisionInBothDirections) {
  int calls = 0;
  const auto answer = [&](double x) -> std::string {
    ++calls;
    return x < 3e8 ? "lasgd" : x < 4e8 ? "dear" : "allreduce";
  };
  const auto up = find_changes({.from = 1e8, .to = 1e10}, answer);
  ASSERT_EQ(up.size(), 2u);
  EXPECT_EQ(up[0].before, "lasgd");
  EXPECT_EQ(up[0].after, "dear");
  EXPECT_GE(up[0].at, 3e8);
  EXPECT_LE(up[0].at, 3e8 * 1.03);
  EXPECT_EQ(up[1].after, "allreduce");
  EXPECT_GE(up[1].at, 4e8);
  EXPECT_LE(up[1].at, 4e8 * 1.03);
  EXPECT_LT(calls, 30);
  const auto down = find_changes({.from = 1e10, .to = 1e8}, answer);
  ASSERT_EQ(down.size(), 2u);
  EXPECT_EQ(down[0].after, "dear");
  EXPECT_LT(down[0].at, 4e8);
  EXPECT_GE(down[0].at, 4e8 / 1.03);
  EXPECT_EQ(down[1].after, "lasgd");
}

TEST(AdviseChanges, AnAnswerThatHoldsEverywhereHasNone) {
  const auto same = [](double) -> std::string { return "dear"; };
  EXPECT_TRUE(find_changes({.from = 1, .to = 1000}, same).empty());
  EXPECT_TRUE(find_changes({.from = 5, .to = 5}, same).empty());
}

TEST(AdviseChanges, AnAnswerThatFlickersEndsTheWalkAfterTheMostThatWereAskedFor) {
  int calls = 0;
  const auto flicker = [&](double) { return std::to_string(calls++); };
  EXPECT_EQ(find_changes({.from = 1, .to = 1e6, .most = 3}, flicker).size(), 3u);
  EXPECT_LT(calls, 60);
}

sim::Scenario four_workers(std::vector<double> speeds) {
  sim::Scenario cluster;
  cluster.workers = 4;
  cluster.network = sim::parse_network("1gbe");
  cluster.profile.name = "toy";
  cluster.profile.layers = {
      {"a", {1000}, std::chrono::milliseconds(10), std::chrono::milliseconds(20)}};
  cluster.batch = 1;
  cluster.speeds = std::move(speeds);
  return cluster;
}

TEST(AdviseCluster, ARatioOfSpeedsChangesNeitherTheirSumNorTheirOrder) {
  for (const auto& speeds : {std::vector<double>{1, 1, 2, 4}, std::vector<double>{}}) {
    const sim::Scenario cluster = four_workers(speeds);
    for (const double ratio : {1.0, 1.5, 8.0}) {
      const sim::Scenario changed = with_ratio(cluster, ratio);
      EXPECT_NEAR(ratio_of(changed), ratio, 1e-9);
      double sum = 0;
      for (const double speed : changed.speeds) sum += speed;
      EXPECT_NEAR(sum, speeds.empty() ? 4 : 8, 1e-9);
      EXPECT_TRUE(std::is_sorted(changed.speeds.begin(), changed.speeds.end(),
                                 [](double a, double b) { return a < b - 1e-9; }));
    }
  }
}

Advice made_up_advice(std::vector<Candidate> candidates, std::vector<double> speeds = {}) {
  Advice advice;
  advice.cluster = four_workers(std::move(speeds));
  advice.candidates = std::move(candidates);
  advice.choice = choose(advice.candidates, {});
  return advice;
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AdviseSentences, SayPlainlyWhenAllreduceIsBest) {
  const Advice advice = made_up_advice({made_up("allreduce", 980), made_up("lasgd", 990)});
  EXPECT_TRUE(says(reason(advice), "Plain `allreduce` is best here")) << reason(advice);
  EXPECT_TRUE(says(reason(advice), "98 %")) << reason(advice);
  EXPECT_TRUE(says(caution(advice), "Throughput is not accuracy")) << caution(advice);
}

TEST(AdviseSentences, NameWhatSynchronousWorkersWaitFor) {
  const std::vector<Candidate> slow{made_up("allreduce", 80), made_up("lasgd", 990)};
  EXPECT_TRUE(says(reason(made_up_advice(slow)), "wait for the network the rest"));
  EXPECT_TRUE(says(reason(made_up_advice(slow, {1, 1, 2, 4})),
                   "wait for the network and the slowest worker"));
  const std::vector<Candidate> unequal{made_up("allreduce", 499), made_up("lasgd", 990)};
  EXPECT_TRUE(says(reason(made_up_advice(unequal, {1, 1, 2, 4})), "wait for the slowest worker"));
  EXPECT_TRUE(says(caution(made_up_advice(slow)), "Throughput is not accuracy"));
}

TEST(AdviseSentences, SayFromWhichBandwidthOnAllreduceIsAsGood) {
  Advice advice = made_up_advice({made_up("allreduce", 80), made_up("lasgd", 990)});
  advice.chosen_again = "lasgd";
  advice.faster = {{2.5e9 / 8, "lasgd", "dear"}, {20e9 / 8, "dear", "allreduce"}};
  const auto sentences = change_sentences(advice);
  ASSERT_GE(sentences.size(), 2u);
  EXPECT_EQ(sentences[0], "Above 2.5 Gb/s `dear` would be the better choice.");
  EXPECT_EQ(sentences[1], "Above 20 Gb/s plain `allreduce` would be as good.");
}

TEST(AdviseSentences, SayNothingOfChangesThatNobodyLookedForOrThatAreOfAnotherAnswer) {
  Advice advice = made_up_advice({made_up("allreduce", 80), made_up("lasgd", 990)});
  EXPECT_TRUE(change_sentences(advice).empty());
  advice.chosen_again = "lasgd";
  EXPECT_EQ(change_sentences(advice).front(),
            "No faster network, up to 100 Gb/s, would change the answer.");
  advice.chosen_again = "dear, bf16";
  const auto other = change_sentences(advice);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_TRUE(says(other.front(), "is not known: `dear` with bfloat16 on the wire is so close"))
      << other.front();
}

}  // namespace
}  // namespace skein::advise

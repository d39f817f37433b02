// What `skein compare` computes and says, without a run.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "compare/claims.h"
#include "compare/comparison.h"
#include "compare/difference.h"
#include "compare/entries.h"
#include "compare/runner.h"
#include "compare/table.h"
#include "multiproc/process.h"  // Folder
#include "skein/error.h"

namespace skein::compare {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

const KnownOptions kKnown{
    {"strategy", false}, {"lr", false},       {"batch", false},   {"set", false},
    {"nesterov", true},  {"momentum", false}, {"samples", false}, {"target-accuracy", false}};

template <typename Body>
std::string refusal(Body body) {
  try {
    body();
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(CompareEntries, CommasPartEntriesAndTheirOptions) {
  const auto entries = parse_entries(
      "allreduce, allreduce:balance=true, abs:lr=0.02,batch=8,model.width=4, dear:nesterov=true",
      kKnown);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].name, "allreduce");
  EXPECT_EQ(words(entries[0].options), (Words{"--strategy", "allreduce"}));
  EXPECT_EQ(words(entries[1].options),
            (Words{"--strategy", "allreduce", "--set", "strategy.balance=true"}));
  EXPECT_EQ(entries[2].name, "abs lr=0.02 batch=8 model.width=4");
  EXPECT_EQ(words(entries[2].options),
            (Words{"--strategy", "abs", "--lr", "0.02", "--batch", "8", "--set", "model.width=4"}));
  EXPECT_EQ(words(entries[3].options), (Words{"--strategy", "dear", "--nesterov"}));
}

TEST(CompareEntries, RefusesWhatIsNoEntry) {
  const auto said = [](const char* text) { return refusal([&] { parse_entries(text, kKnown); }); };
  EXPECT_NE(said("lr=0.1, dear").find("before any strategy"), std::string::npos);
  EXPECT_NE(said("dear:lr").find("expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(said("dear:lr=").find("expected KEY=VALUE"), std::string::npos);
  EXPECT_NE(said("dear,,abs").find("empty"), std::string::npos);
  EXPECT_NE(said("dear:out=x").find("'out' is given to every run"), std::string::npos);
  EXPECT_NE(said("dear:nesterov=yes").find("expected true or false"), std::string::npos);
  EXPECT_NE(refusal([] { check_names({}); }).find("nothing to compare"), std::string::npos);
  EXPECT_NE(refusal([] { check_names(parse_entries("dear, dear", kKnown)); }).find("twice"),
            std::string::npos);
}

TEST(CompareEntries, FoldersDifferWhateverTheNames) {
  const std::vector<Entry> entries{{"a b", {}}, {"a/b", {}}, {"..", {}}, {"lr=0.1", {}}};
  EXPECT_EQ(folder_names(entries), (Words{"a-b", "a-b-2", "entry..", "lr=0.1"}));
}

TEST(CompareEntries, NoFolderStandsWhereTheComparisonHasAFile) {
  for (const char* name : {"current", "/current", "current.tmp", "compare.json", "report.html"})
    EXPECT_NE(refusal([&] {
                folder_names({{name, {}}});
              }).find("expected another name"),
              std::string::npos)
        << name;
  EXPECT_EQ(folder_names({{"currently", {}}}), Words{"currently"});
}

TEST(CompareJob, AnEntrysOptionReplacesTheJobs) {
  const Job job{{"lr", "0.1", false}, {"nesterov", "true", true}, {"set", "model.width=64", false}};
  const Job own{{"lr", "0.2", false},
                {"nesterov", "false", true},
                {"set", "model.width=8", false},
                {"set", "model.depth=2", false}};
  EXPECT_EQ(words(changed(job, own)),
            (Words{"--lr", "0.2", "--set", "model.width=8", "--set", "model.depth=2"}));
}

TEST(CompareSpread, MedianAndRange) {
  const Spread odd = spread_of({5.0, 1.0, std::nullopt, 3.0});
  EXPECT_EQ(odd.median, 3.0);
  EXPECT_EQ(odd.low, 1.0);
  EXPECT_EQ(odd.high, 5.0);
  EXPECT_EQ(odd.count, 3);
  EXPECT_EQ(odd.of, 4);
  EXPECT_EQ(spread_of({4.0, 2.0}).median, 3.0);
  EXPECT_FALSE(spread_of({std::nullopt}).median);
}

TEST(CompareSpread, ARoundThatMissedTheTargetWasSlowerThanAllThatDidNot) {
  EXPECT_EQ(spread_of_times({10.0, std::nullopt, 8.0}).median, 10.0);
  EXPECT_FALSE(spread_of_times({10.0, std::nullopt, std::nullopt}).median);
  const Spread missed = spread_of_times({2.0, std::nullopt, 3.0}),
               slow = spread_of_times({9.0, 9.5, 10.0});
  EXPECT_EQ(apart(missed, slow), Apart::within);  // one round of it took for ever
  EXPECT_EQ(apart(spread_of_times({2.0, 3.0, 2.5}), slow), Apart::beyond);
  EXPECT_EQ(apart(spread_of({2.0}), slow), Apart::unknown);
  const Spread back = spread_from_json(Json::parse(to_json(missed).dump()));
  EXPECT_EQ(back.median, missed.median);
  EXPECT_TRUE(std::isinf(back.high));
}

TEST(CompareFigures, AreReadFromWhatARunSays) {
  const Json result{{"samples_per_second", 500},
                    {"seconds_to_target", nullptr},
                    {"iteration_ms", {{"p50", 12.5}}},
                    {"bytes_sent", 1000},
                    {"accuracy", nullptr},
                    {"per_worker",
                     {{{"busy_fraction", 0.5}, {"waiting_fraction", 0.5}},
                      {{"lost", true}},
                      {{"busy_fraction", 1.0}, {"waiting_fraction", 0.0}}}}};
  const RunFigures figures = figures_of(result, 2000);
  EXPECT_EQ(figures, (RunFigures{{"samples_per_second", 500},
                                 {"of_summed_speed", 0.25},
                                 {"ms_per_1000_samples", 2000},
                                 {"waiting_ms_per_1000_samples", 500},
                                 {"iteration_ms", 12.5},
                                 {"bytes_sent", 1000},
                                 {"busy_fraction", 0.75}}));
  EXPECT_EQ(figures_over({figures}, true).at("seconds_to_target").count, 0);
  EXPECT_EQ(figures_over({figures}, false).count("seconds_to_target"), 0u);
}

// `gossip` and `acid` know how far models are apart when all come together: at checkpoints, of
// which there may be none, and at the end.
TEST(CompareRun, HasTheDistanceThatIsKnownAtTheEndAlone) {
  for (const bool checkpoint : {false, true}) {
    const testing::Folder folder;
    std::ofstream(folder / "result.json")
        << R"({"seconds": 9, "figures": {"consensus_distance": 0.25}})";
    std::ofstream(folder / "metrics.jsonl")
        << R"({"kind": "step", "seconds": 1})"
        << "\n"
        << (checkpoint ? R"({"kind": "step", "seconds": 5, "consensus_distance": 0.5})" : "{}")
        << "\n";
    compare::Run run;
    run.folder = folder / "";
    read_results(run, 1);
    ASSERT_TRUE(run.ok()) << run.error;
    ASSERT_EQ(run.consensus.size(), checkpoint ? 2u : 1u);
    EXPECT_EQ(run.consensus.back().seconds, 9);
    EXPECT_EQ(run.consensus.back().value, 0.25);
    EXPECT_EQ(run.consensus.front().value, checkpoint ? 0.5 : 0.25);
  }
}

TEST(CompareSearch, TriesEveryCombinationOfTheEntrysOwnRate) {
  const auto axes = parse_axes({"lr=0.5x,2x,momentum=0,0.9"});
  const auto tried = trial_options(axes, 0.1);
  ASSERT_EQ(tried.size(), 4u);
  EXPECT_EQ(words(tried[1]), (Words{"--lr", "0.05", "--momentum", "0.9"}));
  EXPECT_EQ(words(tried[2]), (Words{"--lr", "0.2", "--momentum", "0"}));
  const auto said = [](const char* text) { return refusal([&] { parse_axes({text}); }); };
  for (const char* wrong :
       {"lr", "lr=", "lr=0", "lr=1,2x", "rate=1", "momentum=1", "momentum=0.5x", "lr=1,lr=2"})
    EXPECT_NE(said(wrong).find("--search"), std::string::npos) << wrong;
}

Trial trial(const char* lr, double accuracy, std::optional<double> seconds, bool failed = false) {
  Trial out;
  out.options = {{"lr", lr, false}};
  out.run.figures["accuracy"] = accuracy;
  if (seconds) out.run.figures["seconds_to_target"] = *seconds;
  if (failed) out.run.error = "the loss is nan";
  return out;
}

TEST(CompareSearch, ChoosesByWhatWasAskedAndNeverAFailure) {
  Search search;
  search.trials = {trial("0.1", 0.8, std::nullopt), trial("0.2", 0.9, 5), trial("0.3", 0.85, 4),
                   trial("0.4", 0.99, 1, true)};
  EXPECT_EQ(choose(search.trials, JudgedBy::accuracy), 1);
  EXPECT_EQ(choose(search.trials, JudgedBy::time), 2);
  search.chosen = 1;
  EXPECT_TRUE(at_the_edge(search).empty());
  search.chosen = 0;
  EXPECT_EQ(at_the_edge(search), (Words{"lr"}));
  search.trials.resize(1);
  EXPECT_TRUE(at_the_edge(search).empty());  // nothing else was tried
  EXPECT_EQ(choose({trial("1", 1, 1, true)}, JudgedBy::accuracy), -1);
}

TEST(CompareRunner, ATrialHasItsOwnLengthAndSeedAndARoundTheChosenOptions) {
  Plan plan;
  plan.out = "cmp";
  plan.search_samples = 500;
  plan.rows = {
      {{{"strategy", "dear", false}, {"epochs", "3", false}, {"target-accuracy", "0.9", false}},
       "dear",
       0.1}};
  Comparison comparison;
  comparison.rounds = 2;
  comparison.seed = 7;
  EXPECT_EQ(run_arguments(plan, comparison, 0, 0, {{"lr", "0.3", false}}, 4),
            (Words{"train", "--strategy", "dear", "--lr", "0.3", "--samples", "500", "--seed", "9",
                   "--quiet", "--out", "cmp/dear/trial-4", "--overwrite", "--json",
                   "cmp/dear/trial-4/result.json"}));
  EXPECT_EQ(run_arguments(plan, comparison, 0, 2, {{"lr", "0.3", false}}),
            (Words{"train", "--strategy", "dear", "--epochs", "3", "--target-accuracy", "0.9",
                   "--lr", "0.3", "--seed", "8", "--quiet", "--out", "cmp/dear/round-2",
                   "--overwrite", "--json", "cmp/dear/round-2/result.json"}));
}

TEST(CompareRunner, ARunThatPrintsWhatIsNoTextFailsAloneAndItsCommandCanBeTyped) {
  const testing::Folder folder;
  const std::string program = folder / "a program";
  std::ofstream(program) << "#!/bin/sh\nprintf 'not \\377 text\\n'\nexit 3\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  Plan plan;
  plan.program = plan.shown_as = program;
  plan.out = folder / "out";
  plan.timelines = false;
  plan.rows = {{{{"strategy", "dear", false}}, "dear", 0}};
  Comparison comparison;
  comparison.kind = "train";
  comparison.rows.emplace_back().entry.name = "dear";
  SignalQueue signals;
  EXPECT_EQ(run_all(plan, comparison, signals,
                    {[](int, int, const std::string&, const std::string&) {},
                     [](double, const std::string&) {}, [](const Row&, const compare::Run&) {}}),
            0);
  ASSERT_EQ(comparison.rows[0].runs.size(), 1u);
  const compare::Run& run = comparison.rows[0].runs[0];
  EXPECT_EQ(run.code, 3);
  EXPECT_EQ(run.error, "not \xef\xbf\xbd text");
  EXPECT_NO_THROW(to_json(comparison).dump());
  EXPECT_TRUE(run.command.starts_with("'" + program + "' train --strategy dear")) << run.command;
}

ClaimRow claim_row(const std::string& name, std::vector<std::optional<double>> times,
                   double speed) {
  ClaimRow row;
  row.name = row.strategy = name;
  row.plain = true;
  row.figures["seconds_to_target"] = spread_of_times(times);
  row.figures["samples_per_second"] =
      spread_of(std::vector<std::optional<double>>(times.size(), speed));
  return row;
}

bool says(const Claims& claims, const std::string& text) {
  for (const std::string& sentence : claims.sentences)
    if (sentence.find(text) != std::string::npos) return true;
  return claims.recommendation.find(text) != std::string::npos;
}

TEST(CompareClaims, SaysWhoWasFirstAndWhetherBeyondTheSpread) {
  ClaimContext context;
  context.target = 0.9;
  const auto slow = claim_row("allreduce", {20.0, 21.0, 22.0}, 100);
  const Claims clear = claims_of({slow, claim_row("dear", {10.0, 10.5, 11.0}, 200)}, context);
  EXPECT_TRUE(says(
      clear, "dear reached 90 % first, after 10.5 s (10.0 to 11.0), 2.00 × as fast as allreduce"));
  EXPECT_TRUE(says(clear, "do not overlap"));
  EXPECT_TRUE(says(clear, "use dear"));
  const Claims close = claims_of({slow, claim_row("dear", {18.0, 19.0, 20.5}, 200)}, context);
  EXPECT_TRUE(says(close, "within the spread"));
  EXPECT_TRUE(
      says(close, "allreduce is as good as any here"));  // though dear's median is 10 % less
  const Claims once =
      claims_of({claim_row("allreduce", {20.0}, 1), claim_row("dear", {10.0}, 1)}, context);
  EXPECT_TRUE(says(once, "nobody knows how far rounds differ"));
}

TEST(CompareClaims, SaysWhoDidNotGetThereAndWhatWasExpectedInVain) {
  ClaimContext context;
  context.target = 0.9;
  context.expect = {"dear", "acid", "lasgd"};
  const Claims claims = claims_of(
      {claim_row("allreduce", {20.0, 21.0}, 100), claim_row("dear", {30.0, 31.0}, 100),
       claim_row("acid", {std::nullopt, std::nullopt}, 100), claim_row("lasgd", {10.0, 10.1}, 100)},
      context);
  EXPECT_TRUE(says(claims, "acid did not reach 90 %"));
  EXPECT_TRUE(says(claims, "dear was NOT (0.67 ×)"));
  EXPECT_TRUE(says(claims, "acid was not (the target was not reached)"));
  EXPECT_TRUE(says(claims, "lasgd was (2.04 ×)"));
  EXPECT_TRUE(says(claims, "use lasgd"));
}

TEST(CompareClaims, SaysOfWhatWasExpectedAlsoWhereTheFirstMissedTheTarget) {
  ClaimContext context;
  context.target = 0.9;
  context.expect = {"acid", "lasgd"};
  const auto missed = claim_row("allreduce", {std::nullopt, std::nullopt}, 100),
             acid = claim_row("acid", {std::nullopt, std::nullopt}, 100);
  EXPECT_TRUE(says(claims_of({missed, acid, claim_row("lasgd", {10.0, 10.2}, 100)}, context),
                   "Expected to be faster than allreduce here: allreduce did not reach 90 %; acid "
                   "did not, either; lasgd did, after 10.1 s"));
  EXPECT_TRUE(says(claims_of({missed, acid}, context),
                   "faster than allreduce here: nobody knows, since nobody reached 90 %."));
  context.target = 0;
  ClaimRow failed = missed;
  failed.figures.clear();
  EXPECT_TRUE(says(claims_of({failed, acid}, context), "since allreduce has no samples/s"));
}

TEST(CompareClaims, WithoutATargetThroughputIsNotAccuracy) {
  ClaimRow slow = claim_row("allreduce", {}, 0), fast = claim_row("dear", {}, 0);
  slow.figures = {{"samples_per_second", spread_of({100.0})}};
  fast.figures = {{"samples_per_second", spread_of({150.0})}};
  EXPECT_TRUE(says(claims_of({slow, fast}, {}),
                   "throughput alone, which says nothing of accuracy, use dear"));
  EXPECT_TRUE(claims_of(std::vector<ClaimRow>{}, {}).recommendation.empty());
}

// Of the same speed, but one update of abs is a round of four steps.
TEST(CompareClaims, ComparesWaitsOverEqualSamplesAndNotOverUpdates) {
  const auto row = [](const char* name, double update_ms, double waited_ms) {
    const Json result{{"samples_per_second", 1000},
                      {"iteration_ms", {{"p50", update_ms}}},
                      {"exposed_comm_ms", waited_ms},
                      {"per_worker", {{{"waiting_fraction", waited_ms / update_ms}}}}};
    ClaimRow out;
    out.name = out.strategy = name;
    for (const auto& [key, value] : figures_of(result, 0)) out.figures[key] = spread_of({value});
    return out;
  };
  const Claims claims = claims_of({row("allreduce", 100, 20), row("abs", 400, 40)}, {});
  EXPECT_TRUE(says(claims,
                   "abs waited least, 100 ms of the 1000 ms that 1,000 samples took; allreduce "
                   "waited longest, 200 ms of 1000 ms. Times are per 1,000 samples"));
}

TEST(CompareTable, HasNoFigureOfAnUpdate) {
  Comparison comparison;
  Row& row = comparison.rows.emplace_back();
  row.entry.name = row.strategy = "abs";
  compare::Run& run = row.runs.emplace_back();
  run.figures = {{"iteration_ms", 400},
                 {"exposed_comm_ms", 40},
                 {"samples_per_second", 1000},
                 {"waiting_ms_per_1000_samples", 100}};
  for (const std::string& text : {median_table(comparison), LiveTable(comparison).head()}) {
    EXPECT_NE(text.find("waiting/1k"), std::string::npos) << text;
    EXPECT_EQ(text.find("exposed"), std::string::npos) << text;
    EXPECT_EQ(text.find("iteration"), std::string::npos) << text;
  }
  const Json json = to_json(comparison);
  EXPECT_EQ(json["entries"][0]["figures"]["exposed_comm_ms"]["median"], 40) << "who asks has it";
  for (const Json& figure : json["figures"])
    EXPECT_EQ(figure["comparable"],
              figure["key"] != "iteration_ms" && figure["key"] != "exposed_comm_ms");
}

Run good_run(int round, double seconds, double accuracy) {
  Run run;
  run.round = round;
  run.figures = {
      {"seconds_to_target", seconds}, {"accuracy", accuracy}, {"samples_per_second", 10 * seconds}};
  run.curve = {{0, 0, 2, 0.1}, {seconds, 100, 1, accuracy}};
  return run;
}

Comparison two_rows() {
  Comparison out;
  out.rounds = 2;
  out.target = 0.9;
  for (const char* name : {"allreduce", "dear"}) {
    Row& row = out.rows.emplace_back();
    row.entry.name = row.strategy = name;
    const double base = row.entry.name == "dear" ? 10 : 20;
    row.runs = {good_run(1, base, 0.91), good_run(2, base + 1, 0.93)};
  }
  return out;
}

TEST(CompareComparison, SurvivesItsJson) {
  Comparison comparison = two_rows();
  comparison.rows[1].runs[1].error = "rank 1 died";
  comparison.rows[1].runs[1].code = 1;
  const Json json = Json::parse(to_json(comparison).dump());
  EXPECT_EQ(json["entries"][0]["figures"]["seconds_to_target"]["median"], 20.5);
  EXPECT_EQ(json["entries"][1]["figures"]["seconds_to_target"]["of"],
            1);  // the round that failed is none
  EXPECT_EQ(json["entries"][1]["error"], "rank 1 died");
  EXPECT_EQ(json["equal_samples"], 100);
  EXPECT_NEAR(json["entries"][0]["accuracy_at_equal_samples"]["median"].get<double>(), 0.92, 1e-12);
  const Comparison back = comparison_from_json(json);
  EXPECT_EQ(median_table(back), median_table(comparison));
  EXPECT_NE(median_table(back).find("dear, round 2: failed (exit code 1): rank 1 died"),
            std::string::npos);
  EXPECT_THROW(comparison_from_json(Json::object()), Error);
}

TEST(CompareComparison, AccuracyBetweenEvaluationsLiesOnALine) {
  const std::vector<CurvePoint> curve{{0, 0, 0, 0.0}, {1, 100, 0, std::nullopt}, {2, 200, 0, 0.8}};
  EXPECT_EQ(accuracy_at(curve, 50), 0.2);
  EXPECT_EQ(accuracy_at(curve, 200), 0.8);
  EXPECT_FALSE(accuracy_at(curve, 201));
}

TEST(CompareDifference, MatchesByNameAndMarksWhatIsBeyondTheSpread) {
  Comparison before = two_rows(), after = two_rows();
  after.rows[1].entry.name = "lasgd";
  for (auto& run : after.rows[0].runs) run.figures["seconds_to_target"] /= 2;
  const auto changes = changes_between(to_json(before), to_json(after));
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].name, "allreduce");
  EXPECT_TRUE(changes[1].before && !changes[1].after);
  EXPECT_TRUE(!changes[2].before && changes[2].after);
  const Json json = to_json(changes);
  EXPECT_EQ(json[0]["figures"]["seconds_to_target"]["spread"], "beyond");
  EXPECT_EQ(json[0]["figures"]["seconds_to_target"]["better"], true);
  EXPECT_NEAR(json[0]["figures"]["seconds_to_target"]["ratio"].get<double>(), 0.5, 1e-12);
  EXPECT_EQ(json[0]["figures"]["accuracy"]["spread"], "within");
  const auto sentences = change_sentences(changes);
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_NE(sentences[0].find("allreduce: time to target is better"), std::string::npos);
  EXPECT_NE(change_table(changes).find("only after"), std::string::npos);
}

TEST(CompareDifference, ATargetThatNoRoundReachedIsWorseThanOneThatAllDid) {
  Comparison before = two_rows(), after = two_rows();
  for (auto& run : before.rows[0].runs) run.figures.erase("seconds_to_target");
  for (auto& run : before.rows[1].runs) run.figures.erase("seconds_to_target");
  for (auto& run : after.rows[1].runs) run.figures.erase("seconds_to_target");
  const Json now = to_json(changes_between(to_json(before), to_json(after)));
  EXPECT_EQ(now[0]["figures"]["seconds_to_target"]["spread"], "beyond");
  EXPECT_EQ(now[0]["figures"]["seconds_to_target"]["better"], true);
  EXPECT_EQ(now[1]["figures"]["seconds_to_target"]["spread"], "within");  // nobody, both times
  const Json back = to_json(changes_between(to_json(after), to_json(before)));
  EXPECT_EQ(back[0]["figures"]["seconds_to_target"]["better"], false);
  for (auto& row : after.rows) row.runs.resize(1);
  const Json once = to_json(changes_between(to_json(before), to_json(after)));
  EXPECT_EQ(once[0]["figures"]["seconds_to_target"]["spread"], "unknown");
}

TEST(CompareTimeline, BeginsAStepWithTheFirstPieceOfAForwardThatWaits) {
  const testing::Folder folder;
  std::ofstream out(folder / "trace.json");
  for (int step = 0; step < 10; ++step)
    for (const auto& [lane, name, from, to] : {std::tuple{"wait", "read", 2, 3},
                                               {"forward", "forward", 0, 2},
                                               {"forward", "forward", 3, 4},
                                               {"update", "update", 4, 5},
                                               {"forward", "forward", 5, 6},
                                               {"backward", "backward", 6, 9},
                                               {"wait", "step", 9, 10}})
      out << Json{{"ph", "X"},
                  {"pid", 0},
                  {"cat", lane},
                  {"name", name},
                  {"ts", 1000 * (10 * step + from)},
                  {"dur", 1000 * (to - from)}}
                 .dump()
          << "\n";
  out.close();
  const Timeline timeline = read_timeline(folder / "trace.json", 2);
  EXPECT_EQ(timeline.steps, 2);
  EXPECT_DOUBLE_EQ(timeline.length_ms, 20);
}

TEST(CompareTimeline, CutsStepsOfTheSlowestWorkerOutOfTheMiddle) {
  const testing::Folder folder;
  std::ofstream out(folder / "trace.json");
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  // Worker 0 begins a step every 10 ms, worker 1 every 20 ms.
  const char* comma = "";
  for (int rank = 0; rank < 2; ++rank)
    for (int step = 0; step < (rank == 0 ? 20 : 10); ++step) {
      const int length = rank == 0 ? 10'000 : 20'000;
      for (const auto& [lane, from, to] : {std::tuple{"forward", 0, 4}, {"wait", 4, 10}})
        out << std::exchange(comma, ",")
            << Json{{"ph", "X"},
                    {"pid", rank},
                    {"cat", lane},
                    {"ts", step * length + from * length / 10},
                    {"dur", (to - from) * length / 10}}
                   .dump()
            << "\n";
    }
  out << "],\"otherData\":{}}\n";
  out.close();
  const Timeline timeline = read_timeline(folder / "trace.json", 2);
  EXPECT_EQ(timeline.steps, 2);
  EXPECT_DOUBLE_EQ(timeline.length_ms, 40);
  EXPECT_DOUBLE_EQ(timeline.from_ms, 60);
  ASSERT_EQ(timeline.workers.size(), 2u);
  EXPECT_EQ(timeline.workers[0].spans.size(), 8u);
  EXPECT_EQ(timeline.workers[1].spans.size(), 4u);
  EXPECT_EQ(timeline.workers[1].spans[1].lane, "wait");
  EXPECT_DOUBLE_EQ(timeline.workers[1].spans[1].end_ms, 20);
  EXPECT_TRUE(read_timeline(folder / "nothing.json").workers.empty());
}

}  // namespace
}  // namespace skein::compare

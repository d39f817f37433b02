// `skein compare` as a person runs it: simulated and real, what fails, what is stopped, and the
// report in a browser.
#include <nlohmann/json.hpp>

#include "multiproc/browser.h"
#include "multiproc/http.h"
#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;
using std::chrono::seconds;

Words compare_words(Words words, const std::string& out) {
  words.insert(words.begin(), {kSkein, "compare"});
  words.insert(words.end(), {"--out", out});
  return words;
}

Finished compare(Words words, const std::string& out) {
  return Process(compare_words(std::move(words), out)).wait();
}

// 0.1 s each.
Words simulated(const std::string& strategies) {
  return {"--simulate", "--strategies", strategies,  "--workers", "2",
          "--network",  "10gbe",        "--profile", "resnet50",  "--jitter",
          "0.1",        "--iterations", "3"};
}

// A second or two each.
Words trained(const std::string& strategies) {
  return {"--strategies",
          strategies,
          "--workers",
          "2",
          "--model",
          "mlp",
          "--set",
          "model.width=16",
          "--set",
          "data.train=256",
          "--set",
          "data.test=64",
          "--samples",
          "512",
          "--eval-every",
          "128",
          "--emulate-step",
          "2ms",
          "--target-accuracy",
          "0.05"};
}

const Json& entry(const Json& comparison, const std::string& name) {
  for (const Json& each : comparison.at("entries"))
    if (each.at("name") == name) return each;
  ADD_FAILURE() << "no entry " << name;
  return comparison;
}

TEST(Compare, InterleavesRoundsAndHasEveryFigureOfItsRuns) {
  const Folder folder;
  Words words = simulated("allreduce, dear:fusion=none");
  words.insert(words.end(), {"--rounds", "2", "--seed", "5", "--json", folder / "c.json"});
  const auto end = compare(words, folder / "out");
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  EXPECT_LT(end.err.find("1 of 4: allreduce, round 1"),
            end.err.find("2 of 4: dear fusion=none, round 1"));
  EXPECT_LT(end.err.find("2 of 4"), end.err.find("3 of 4: allreduce, round 2"));
  const Json json = Json::parse(contents(folder / "c.json"));
  EXPECT_EQ(json.at("command"), "compare");
  EXPECT_TRUE(json.at("complete"));
  const Json& dear = entry(json, "dear fusion=none");
  EXPECT_EQ(dear.at("runs").size(), 2u);
  EXPECT_NE(dear.at("runs")[0].at("figures"),
            dear.at("runs")[1].at("figures"));  // each round has its seed
  double sum = 0;
  for (int round = 1; round <= 2; ++round) {
    const Json run = Json::parse(contents(
        folder / ("out/dear-fusion=none/round-" + std::to_string(round) + "/result.json")));
    EXPECT_EQ(run.at("seed"), 4 + round);
    EXPECT_EQ(run.at("config").at("set"), Json::array({"strategy.fusion=none"}));
    sum += run.at("samples_per_second").get<double>();
  }
  EXPECT_NEAR(dear.at("figures").at("samples_per_second").at("median").get<double>(), sum / 2,
              1e-6);
  EXPECT_FALSE(dear.at("timeline").at("workers").empty());
  EXPECT_NE(end.out.find(json.at("recommendation").get<std::string>()), std::string::npos);
}

// The command of a report does what the report says.
TEST(Compare, ItsCommandsAreWhatAUserWouldType) {
  const Folder folder;
  Words words = simulated("allreduce");
  words.insert(words.end(), {"--no-timeline", "--quiet"});
  ASSERT_EQ(compare(words, folder / "out").code, 0);
  const Json run = Json::parse(contents(folder / "out/compare.json"))["entries"][0]["runs"][0];
  const std::string result = folder / "out/allreduce/round-1/result.json";
  const Json before = Json::parse(contents(result));
  ASSERT_TRUE(std::filesystem::remove(result));
  ASSERT_EQ(std::system((run["command"].get<std::string>() + " > /dev/null").c_str()), 0);
  EXPECT_EQ(Json::parse(contents(result)).at("trace_hash"), before.at("trace_hash"));
}

TEST(Compare, SearchesTheSameForAllAndTrainsWithWhatWasBest) {
  const Folder folder;
  Words words = simulated("allreduce, lasgd:lr=0.02");
  words.insert(words.end(), {"--objective", "quadratic", "--search", "lr=0.5x,1e9x",
                             "--search-samples", "256", "--no-timeline"});
  const auto end = compare(words, folder / "out");
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  const Json& lasgd = entry(json, "lasgd lr=0.02");
  EXPECT_EQ(lasgd.at("search").at("chosen").at("lr"), 0.01);  // the other rate explodes
  EXPECT_EQ(lasgd.at("search").at("samples"), 512);
  EXPECT_EQ(lasgd.at("search").at("at_the_edge"), Json::array({"lr"}));
  EXPECT_NE(lasgd.at("command").get<std::string>().find("--lr 0.01 "), std::string::npos);
  EXPECT_EQ(entry(json, "allreduce").at("search").at("chosen").at("lr"), 0.025);
  EXPECT_NE(end.out.find("at the edge of what was tried"), std::string::npos) << end.out;
}

TEST(Compare, TrainsForRealAndContinues) {
  const Folder folder;
  Words words = trained("allreduce, lasgd:lr=0.02");
  words.insert(words.end(), {"--page", "0"});
  const auto end = compare(words, folder / "out");
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  const Json& lasgd = entry(json, "lasgd lr=0.02");
  EXPECT_GT(lasgd.at("figures").at("seconds_to_target").at("median"), 0);
  EXPECT_NEAR(lasgd.at("summed_speed").get<double>(), 2 * 32 / 0.002, 1e-6);
  EXPECT_EQ(lasgd.at("per_worker").size(), 2u);
  EXPECT_FALSE(lasgd.at("runs")[0].at("curve").empty());

  EXPECT_EQ(count(end.err, "page  http://127.0.0.1:"), 1) << end.err;  // one for all runs
  EXPECT_EQ(std::filesystem::canonical(folder / "out/current"),
            std::filesystem::canonical(folder / "out/lasgd-lr=0.02/round-1"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/current/timeline"));

  // Asked again, it refuses; with --continue it keeps what is there.
  EXPECT_EQ(compare(words, folder / "out").code, 2);
  words.emplace_back("--continue");
  const auto again = compare(words, folder / "out");
  ASSERT_EQ(again.code, 0) << again.err;
  const Json kept = Json::parse(contents(folder / "out/compare.json"));
  EXPECT_TRUE(entry(kept, "allreduce").at("runs")[0].at("reused"));
  EXPECT_EQ(entry(kept, "allreduce").at("figures"), entry(json, "allreduce").at("figures"));
}

TEST(Compare, WhatIsMisspeltInOneEntryIsSaidBeforeTheFirstRun) {
  const Folder folder;
  const auto said = [&](Words words) {
    const auto end = compare(std::move(words), folder / "out");
    EXPECT_EQ(end.code, 2) << end.out << end.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "out")) << end.err;
    return end.err;
  };
  const std::string entry_option = said(simulated("allreduce, dear:fuison=none"));
  EXPECT_NE(entry_option.find("entry 'dear fuison=none'"), std::string::npos) << entry_option;
  EXPECT_NE(said(simulated("allreduce, daer")).find("did you mean 'dear'"), std::string::npos);
  EXPECT_NE(said(simulated("allreduce, dear:momentm=0.5")).find("did you mean 'momentum'"),
            std::string::npos);
  Words words = simulated("allreduce");
  words.insert(words.end(), {"--itertions", "4"});
  EXPECT_NE(said(words).find("unknown option '--itertions'"), std::string::npos);
  words = simulated("allreduce");
  words.insert(words.end(), {"--expect", "dear"});
  EXPECT_NE(said(words).find("there is no entry 'dear'"), std::string::npos);
  std::ofstream(folder / "job.toml")
      << "workers = 2\nprofile = \"resnet50\"\n[entries.dear]\nbtach = 3\n";
  const std::string file = said({"--simulate", "--config", folder / "job.toml"});
  EXPECT_NE(file.find("did you mean 'batch'"), std::string::npos) << file;
}

TEST(Compare, ReadsEntriesFromAFile) {
  const Folder folder;
  std::ofstream(folder / "job.toml")
      << "simulate = true\nworkers = 2\nprofile = \"resnet50\"\niterations = 3\nrounds = 1\n"
         "[entries.plain]\nstrategy = \"allreduce\"\n[entries.dear]\nbatch = 16\nfusion = "
         "\"none\"\n";
  const auto end =
      compare({"--config", folder / "job.toml", "--iterations", "2", "--quiet"}, folder / "out");
  ASSERT_EQ(end.code, 0) << end.err;
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  EXPECT_EQ(json["entries"][0]["name"], "plain");
  const Json dear = Json::parse(contents(folder / "out/dear/round-1/result.json"));
  EXPECT_EQ(dear["batch"], 16);
  EXPECT_EQ(dear["iterations"], 2);  // the command line wins
  EXPECT_EQ(dear["config"]["set"], Json::array({"strategy.fusion=none"}));
}

TEST(Compare, ARunThatFailsIsARowAndTheOthersGoOn) {
  const Folder folder;
  const auto end =
      compare(simulated("allreduce, allreduce:faults=crash:rank=1, dear"), folder / "out");
  EXPECT_EQ(end.code, 2) << end.err;  // crash without a time is refused at once
  Words words = simulated("dear, allreduce");
  words.insert(words.end(), {"--faults", "crash:rank=1,at=300ms", "--rounds", "2"});
  const auto failed = compare(words, folder / "crash");
  EXPECT_EQ(failed.code, 1) << failed.err;
  const Json json = Json::parse(contents(folder / "crash/compare.json"));
  EXPECT_TRUE(json.at("complete"));
  for (const Json& each : json.at("entries")) {
    EXPECT_EQ(each.at("runs").size(), 2u);
    EXPECT_NE(each.at("error").get<std::string>().find("rank 1"), std::string::npos)
        << each.at("error");
  }
  EXPECT_EQ(count(failed.out, "failed (exit code 1)"), 8);  // as they come, and in the table
}

TEST(Compare, AStopEndsTheRunAndKeepsWhatIsKnown) {
  const Folder folder;
  Words words = trained("allreduce, dear:samples=100000000");
  Process process(compare_words(words, folder / "out"));
  const std::string metrics = folder / "out/dear-samples=100000000/round-1/metrics.jsonl";
  ASSERT_TRUE(eventually([&] { return contents(metrics).find("step") != std::string::npos; }))
      << process.err();
  kill(process.pid(), SIGINT);
  const auto end = process.wait();
  EXPECT_EQ(end.code, 128 + SIGINT) << end.err;
  EXPECT_NE(end.err.find("stopped"), std::string::npos);
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  EXPECT_FALSE(json.at("complete"));
  EXPECT_EQ(entry(json, "allreduce").at("runs").size(), 1u);
  EXPECT_TRUE(entry(json, "dear samples=100000000").at("runs").empty());
  EXPECT_TRUE(std::filesystem::exists(folder / "out/report.html"));
}

TEST(Compare, TwoComparisonsCanBeCompared) {
  const Folder folder;
  Words words = simulated("allreduce");
  words.insert(words.end(), {"--rounds", "2", "--no-timeline", "--quiet"});
  ASSERT_EQ(compare(words, folder / "before").code, 0);
  words.insert(words.end(), {"--network", "1gbe"});
  words.erase(std::find(words.begin(), words.end(), "10gbe") - 1,
              std::find(words.begin(), words.end(), "10gbe") + 1);
  ASSERT_EQ(compare(words, folder / "after").code, 0);
  const auto diff =
      run({kSkein, "compare", "diff", folder / "before", folder / "after/compare.json", "--report",
           folder / "diff.html", "--json", folder / "diff.json"});
  ASSERT_EQ(diff.code, 0) << diff.err;
  EXPECT_NE(diff.out.find("allreduce: samples/s is worse"), std::string::npos) << diff.out;
  EXPECT_EQ(Json::parse(contents(
                folder / "diff.json"))["changes"][0]["figures"]["samples_per_second"]["spread"],
            "beyond");
  const auto none = run({kSkein, "compare", "diff", folder / "before", folder / "nothing"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("expected a compare.json"), std::string::npos) << none.err;
  const auto show = run({kSkein, "compare", "show", folder / "before", folder / "after"});
  EXPECT_EQ(show.code, 0);
  EXPECT_EQ(count(show.out, "By throughput alone"), 2) << show.out;
}

// Paths need not be UTF-8, and what runs print need not be either.
TEST(Compare, BytesThatAreNoUtf8AreReplacedInItsFiles) {
  const Folder folder;
  Words words = simulated("allreduce");
  words.insert(words.end(), {"--quiet", "--no-timeline", "--json", folder / "c.json"});
  const std::string out = folder /
                          "b\xff"
                          "d";
  const auto end = compare(words, out);
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  for (const std::string& file : {out + "/compare.json", std::string(folder / "c.json"),
                                  out + "/allreduce/round-1/result.json"}) {
    const Json json = Json::parse(contents(file));
    EXPECT_NE(json.dump().find("b\xef\xbf\xbd"
                               "d"),
              std::string::npos)
        << file;
  }
}

TEST(Compare, AnEntryCannotHaveTheNameOfTheComparisonsOwnLink) {
  const Folder folder;
  std::ofstream(folder / "job.toml") << "simulate = true\nworkers = 2\nprofile = \"resnet50\"\n"
                                        "[entries.current]\nstrategy = \"allreduce\"\n";
  const auto end = compare({"--config", folder / "job.toml"}, folder / "out");
  EXPECT_EQ(end.code, 2) << end.err;
  EXPECT_NE(end.err.find("entry 'current': the comparison itself has 'current'"), std::string::npos)
      << end.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// A file of `make demo`, with every entry, for a few steps each. The others have the same entries
// on other clusters, which the test below runs.
TEST(Compare, EveryEntryOfTheDemoEndsWell) {
  const Folder folder;
  const auto entries = [](const std::string& cluster) {
    const std::string all = contents(std::string(kSource) + "/examples/demo/" + cluster + ".toml");
    return all.substr(std::min(all.find("[entries."), all.size()));
  };
  EXPECT_EQ(entries("unequal-machines"), entries("both"));
  EXPECT_EQ(count(entries("slow-network"), "[entries."), count(entries("both"), "[entries."));
  const auto end =
      Process(
          compare_words({"--config", std::string(kSource) + "/examples/demo/both.toml", "--samples",
                         "256", "--eval-every", "128", "--emulate-step", "4ms", "--set",
                         "data.train=256", "--set", "data.test=64", "--no-timeline", "--quiet"},
                        folder / "out"))
          .wait();
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  EXPECT_TRUE(json.at("complete"));
  EXPECT_EQ(json.at("entries").size(), 8u);
  for (const Json& each : json.at("entries")) {
    EXPECT_FALSE(each.contains("error") && !each.at("error").empty()) << each.at("error");
    EXPECT_GT(each.at("figures").at("samples_per_second").at("median"), 0) << each.at("name");
    EXPECT_TRUE(each.at("figures").contains("accuracy")) << each.at("name");
  }
}

TEST(Compare, TheDemoHasOnePageForAllClustersAndOneReport) {
  const Folder folder;
  const std::string out = folder / "out";
  Process process({std::string(kSource) + "/examples/demo/run.sh", kSkein, out, "--strategies",
                   "allreduce", "--expect", "allreduce", "--samples", "128", "--eval-every", "64",
                   "--emulate-step", "4ms", "--set", "data.train=256", "--set", "data.test=64"});
  // The address of the first cluster is the second's.
  ASSERT_TRUE(eventually([&] {
    return std::filesystem::exists(out + "/unequal-machines/current/run.json");
  })) << process.err();
  const PageUrl url = PageUrl::in(process.err());
  const std::string answer = ask(url.port, "GET /api/state?token=" + url.token);
  const auto end = process.wait();
  ASSERT_EQ(end.code, 0) << end.out << end.err;
  for (const char* cluster : {"slow-network", "unequal-machines", "both"}) {
    const std::string run = out + "/" + cluster + "/current";
    EXPECT_TRUE(std::filesystem::exists(run + "/timeline")) << run;
  }
  EXPECT_FALSE(std::filesystem::is_symlink(out + "/current"));
  if (end.out.find("no report") != std::string::npos)
    GTEST_SKIP() << end.out.substr(end.out.find("no report"));
  EXPECT_EQ(count(end.err, "page  http://127.0.0.1:"), 1) << end.err;
  EXPECT_EQ(status_of(answer), 200) << end.err;
  EXPECT_NE(body_of(answer).find("unequal-machines"), std::string::npos) << answer;
  EXPECT_TRUE(std::filesystem::exists(out + "/report.html"));
}

// Opens a report narrow and wide, and expects no error, no blank plot and as many plots.
template <typename Check>
void open_report(const std::string& file, const std::string& plots, Check check) {
  for (const int width : {390, 1280}) {
    SCOPED_TRACE(width);
    const std::string dom = dom_after_scripts("file://" + file + "?check", width);
    EXPECT_EQ(attribute_of(dom, "<html", "data-problems"), "");
    EXPECT_EQ(attribute_of(dom, "<html", "data-blank"), "");
    EXPECT_EQ(attribute_of(dom, "<html", "data-scrolls"), "false");
    EXPECT_EQ(attribute_of(dom, "<html", "data-drawn"), plots);
    check(dom);
  }
}

// Every number of the table is the one in compare.json, and there is no other: none of an update,
// which is not the same under every strategy.
void expect_table(const std::string& dom, const Json& comparison) {
  std::set<std::string> compared;
  for (const Json& figure : comparison.at("figures"))
    if (figure.at("comparable")) compared.insert(figure.at("key"));
  int numbers = 0;
  for (const Json& row : comparison.at("entries"))
    for (const auto& [key, spread] : row.at("figures").items()) {
      if (spread.at("median").is_null() || !compared.contains(key)) continue;
      ++numbers;
      const std::string cell =
          "data-entry=\"" + row.at("name").get<std::string>() + "\" data-figure=\"" + key + "\"";
      EXPECT_EQ(std::atof(attribute_of(dom, cell, "data-value").c_str()),
                spread.at("median").get<double>())
          << cell;
    }
  EXPECT_GT(numbers, 0);
  EXPECT_EQ(count(dom, "data-value="), numbers);
  EXPECT_EQ(count(dom, "Times are per 1,000 samples"), 2) << "in the data, and for people";
}

TEST(CompareInChromium, TheReportDrawsAllPlotsAndItsTableHasTheNumbersOfTheJson) {
  if (chromium().empty()) GTEST_SKIP() << "there is no chromium here (Debian: chromium)";
  const Folder folder;
  Words words = simulated("allreduce, lasgd:period=2, gossip");
  words.insert(words.end(),
               {"--objective", "quadratic", "--rounds", "2", "--title", "</script><b>&"});
  const auto end = compare(words, folder / "out");
  ASSERT_EQ(end.code, 0) << end.err;
  if (end.out.find("no report") != std::string::npos)
    GTEST_SKIP() << end.out.substr(end.out.find("no report"));
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  // 2 curves, 4 of bars, 3 timelines
  open_report(folder / "out/report.html", "9", [&](const std::string& dom) {
    EXPECT_NE(dom.find("&lt;/script&gt;&lt;b&gt;&amp;</h1>"), std::string::npos);
    EXPECT_NE(dom.find("Busy computing, each worker"), std::string::npos);
    expect_table(dom, json);
  });
}

TEST(CompareInChromium, TheReportOfTrainedRunsHasAccuraciesAndTheirTarget) {
  if (chromium().empty()) GTEST_SKIP() << "there is no chromium here (Debian: chromium)";
  const Folder folder;
  Words words = trained("allreduce, lasgd:lr=0.02");
  words.insert(words.end(), {"--rounds", "2", "--quiet"});
  const auto end = compare(words, folder / "out");
  ASSERT_EQ(end.code, 0) << end.err;
  if (end.out.find("no report") != std::string::npos)
    GTEST_SKIP() << end.out.substr(end.out.find("no report"));
  const Json json = Json::parse(contents(folder / "out/compare.json"));
  // Accuracy over time and over samples, 5 of bars, 2 timelines; and how far models are apart,
  // where a run this short has found out.
  bool consensus = false;
  for (const Json& each : json.at("entries"))
    for (const Json& run : each.at("runs")) consensus |= !run.at("consensus").empty();
  open_report(folder / "out/report.html", consensus ? "10" : "9", [&](const std::string& dom) {
    EXPECT_NE(dom.find("Accuracy over time"), std::string::npos);
    EXPECT_NE(dom.find("Accuracy over samples"), std::string::npos);
    EXPECT_NE(dom.find("Time to 5 %"), std::string::npos);
    EXPECT_EQ(count(dom, "target 5 %</button>"), 2);  // in the legends of both curves
    expect_table(dom, json);
  });

  // And of two such comparisons.
  const std::string diff = folder / "diff.html";
  const auto made = run({kSkein, "compare", "diff", folder / "out", folder / "out", "--report",
                         diff, "--json", folder / "diff.json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Json changes = Json::parse(contents(folder / "diff.json")).at("changes");
  // bars of 5 figures, and the accuracies of both entries
  open_report(diff, "7", [&](const std::string& dom) {
    int rows = 0;
    for (const Json& entry : changes)
      for (const auto& [key, change] : entry.at("figures").items()) {
        ++rows;
        const std::string row = "data-entry=\"" + entry.at("name").get<std::string>() +
                                "\" data-figure=\"" + key + "\"";
        for (const char* side : {"before", "after"})
          EXPECT_EQ(std::atof(attribute_of(dom, row, std::string("data-") + side).c_str()),
                    change.at(side).at("median").get<double>())
              << row << side;
      }
    EXPECT_GT(rows, 10);
    EXPECT_EQ(count(dom, "data-before="), rows);
    EXPECT_NE(dom.find("Accuracy over time: allreduce"), std::string::npos);
  });
}

TEST(CompareInChromium, ManyWorkersHaveOneBarForEachEntryAndTheReportSaysSo) {
  if (chromium().empty()) GTEST_SKIP() << "there is no chromium here (Debian: chromium)";
  const Folder folder;
  const auto end = compare({"--simulate", "--strategies", "allreduce, dear", "--workers", "17",
                            "--profile", "resnet50", "--iterations", "2", "--no-timeline"},
                           folder / "out");
  ASSERT_EQ(end.code, 0) << end.err;
  if (end.out.find("no report") != std::string::npos)
    GTEST_SKIP() << end.out.substr(end.out.find("no report"));
  open_report(folder / "out/report.html", "4", [&](const std::string& dom) {
    EXPECT_NE(dom.find("Busy computing, the middle worker"), std::string::npos);
    EXPECT_NE(dom.find("too many workers for a bar each"), std::string::npos);
  });
}

}  // namespace
}  // namespace skein::testing

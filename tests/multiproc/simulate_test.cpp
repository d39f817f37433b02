// `skein simulate` as a person runs it: figures, sweeps, traces, faults, and what it refuses.
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using Json = nlohmann::json;

Finished simulate(std::vector<std::string> words) {
  words.insert(words.begin(), {kSkein, "simulate"});
  return run(words);
}

Json figures(std::vector<std::string> words, int code = 0) {
  const Folder folder;
  words.insert(words.end(), {"--quiet", "--json", folder / "s.json"});
  const auto end = simulate(words);
  EXPECT_EQ(end.code, code) << end.out << end.err;
  return Json::parse(contents(folder / "s.json"));
}

TEST(Simulate, ReportsEveryFigure) {
  const Json json = figures({"--workers", "8", "--gpus-per-host", "4", "--profile", "resnet50",
                             "--iterations", "3", "--seed", "5"});
  EXPECT_EQ(json.at("command"), "simulate");
  EXPECT_EQ(json.at("strategy"), "allreduce");
  EXPECT_EQ(json.at("seed"), 5);
  EXPECT_EQ(json.at("workers"), 8);
  EXPECT_EQ(json.at("parameters"), 25557032);
  EXPECT_EQ(json.at("iterations"), 3);
  EXPECT_EQ(json.at("samples"), 3 * 8 * 64);
  EXPECT_TRUE(json.at("completed"));
  EXPECT_EQ(json.at("trace_hash").get<std::string>().size(), 16u);
  EXPECT_GT(json.at("events"), 1000);
  EXPECT_GT(json.at("events_per_second"), 0);
  const double iteration = json.at("iteration_ms").at("p50"), exposed = json.at("exposed_comm_ms");
  // Workers leave a collective's last step one after the other, so each has its own small wait.
  EXPECT_NEAR(iteration, 229.4 + exposed, 1);
  EXPECT_GT(exposed, 5);
  EXPECT_NEAR(json.at("utilisation"), 229.4 / iteration, 1e-3);
  ASSERT_EQ(json.at("per_worker").size(), 8u);
  double sent = 0;
  for (const Json& worker : json.at("per_worker")) {
    EXPECT_EQ(worker.at("samples"), 3 * 64);
    EXPECT_EQ(worker.at("micro_batches"), 3);
    EXPECT_NEAR(worker.at("busy_fraction"), 229.4 / iteration, 5e-3);
    EXPECT_EQ(worker.at("outcome"), "completed");
    sent += worker.at("bytes_sent").get<double>();
  }
  EXPECT_EQ(json.at("bytes_sent"), sent);
  EXPECT_EQ(json.at("config").at("profile"), "resnet50");
}

TEST(Simulate, TheSeedFixesTheHash) {
  const std::vector<std::string> words{
      "--workers", "6", "--profile", "resnet50", "--iterations", "2", "--jitter", "0.1", "--seed"};
  const auto hash = [&](const char* seed) {
    auto all = words;
    all.emplace_back(seed);
    return figures(all).at("trace_hash");
  };
  EXPECT_EQ(hash("1"), hash("1"));
  EXPECT_NE(hash("1"), hash("2"));
}

TEST(Simulate, ARealModelLearnsAtVirtualTimes) {
  const Json json = figures({"--workers",      "3",
                             "--objective",    "model",
                             "--model",        "mlp",
                             "--data",         "glyphs",
                             "--set",          "model.width=32",
                             "--set",          "data.train=600",
                             "--set",          "data.test=100",
                             "--emulate-step", "40ms",
                             "--emulate-link", "100mbit",
                             "--batch",        "8",
                             "--iterations",   "40",
                             "--lr",           "0.02"});
  const Json& curve = json.at("curve");
  ASSERT_GE(curve.size(), 5u);
  EXPECT_EQ(curve.front().at("samples"), 0);
  EXPECT_EQ(curve.back().at("samples"), 40 * 3 * 8);
  EXPECT_LT(curve.back().at("loss"), curve.front().at("loss"));
  EXPECT_GE(json.at("iteration_ms").at("p50"), 40);
  EXPECT_EQ(json.at("consensus").back().at("value"), 0);
}

TEST(Simulate, StopsAtTheTarget) {
  const Json json =
      figures({"--workers", "4", "--objective", "quadratic", "--condition", "5", "--lr", "0.5",
               "--momentum", "0", "--target-loss", "0.5", "--iterations", "1000"});
  EXPECT_LE(json.at("loss"), 0.5);
  EXPECT_LT(json.at("iterations"), 1000);
  EXPECT_GT(json.at("seconds_to_target"), 0);
}

TEST(Simulate, SweepsAGridWithARowEach) {
  const Folder folder;
  const auto end = simulate({"--profile", "resnet50", "--workers", "2", "--iterations", "1",
                             "--sweep", "workers=2,4", "--sweep", "strategy.fusion=none,auto",
                             "--json", folder / "s.json"});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.out, "\n"), 5) << end.out;
  const Json rows = Json::parse(contents(folder / "s.json")).at("sweep");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("settings"), (Json{{"workers", "2"}, {"strategy.fusion", "none"}}));
  EXPECT_EQ(rows[3].at("settings"), (Json{{"workers", "4"}, {"strategy.fusion", "auto"}}));
  EXPECT_EQ(rows[3].at("workers"), 4);
  EXPECT_NE(rows[0].at("iteration_ms").at("p50"), rows[1].at("iteration_ms").at("p50"));
  const Json alone = figures({"--profile", "resnet50", "--workers", "4", "--iterations", "1"});
  EXPECT_EQ(rows[3].at("trace_hash"), alone.at("trace_hash"));
}

TEST(Simulate, TracesAsRealRunsDo) {
  const Folder folder;
  const auto end = simulate({"--profile", "resnet50", "--workers", "4", "--iterations", "2",
                             "--trace", folder / "t.json", "--trace-workers", "2"});
  ASSERT_EQ(end.code, 0) << end.err;
  const Json trace = Json::parse(contents(folder / "t.json"));
  std::map<std::string, int> lanes;
  std::set<int> ranks;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++lanes[event.at("cat")];
    ranks.insert(event.at("pid").get<int>());
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  for (const char* lane : {"forward", "backward", "wait"}) EXPECT_EQ(lanes[lane], 4) << lane;
  EXPECT_GT(lanes["all-reduce"], 4);
}

TEST(Simulate, ALostWorkerEndsTheRunAndIsNamed) {
  const std::vector<std::string> words{"--profile",  "resnet50", "--workers", "4",
                                       "--deadline", "5s",       "--faults"};
  for (const char* kind : {"crash", "vanish"}) {
    auto all = words;
    all.push_back(std::string(kind) + ":rank=2,at=500ms");
    const Json json = figures(all, 1);
    EXPECT_FALSE(json.at("completed"));
    EXPECT_EQ(json.at("lost_workers"), Json::array({2})) << kind;
    EXPECT_EQ(json.at("per_worker").at(2).at("outcome"), "crashed");
    EXPECT_LT(json.at("first_failure").at("seconds"), kind[0] == 'c' ? 1.0 : 6.0);
  }
  auto harmless = words;
  harmless.emplace_back("pause:rank=1,at=300ms,for=1s; slow:rank=3,at=0s,for=2s,factor=3");
  EXPECT_TRUE(figures(harmless).at("completed"));
}

TEST(Simulate, ASwarmSeedIsReplayed) {
  const auto end = simulate({"--swarm", "17"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.out.find("seed 17: "), std::string::npos) << end.out;
  EXPECT_EQ(figures({"--swarm", "1..20"}).at("seeds"), 20);
}

TEST(Simulate, LinksFromAFileSlowTheRingDown) {
  const Folder folder;
  std::ofstream(folder / "links") << "# one bad cable\n1 2 100mbit 2ms\n";
  const std::vector<std::string> words{"--profile", "resnet50",     "--workers",
                                       "4",         "--iterations", "1"};
  auto bad = words;
  bad.insert(bad.end(), {"--links", folder / "links"});
  EXPECT_GT(figures(bad).at("iteration_ms").at("p50").get<double>(),
            5 * figures(words).at("iteration_ms").at("p50").get<double>());
}

TEST(Simulate, WrongOptionsAreNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--profile", "nope"}, "no profile 'nope'"},
      {{}, "--profile is missing"},
      {{"--profile", "resnet50", "--network", "5gbe"}, "there is no such network"},
      {{"--profile", "resnet50", "--network", "10gbe:speed=1"}, "unknown key 'speed'"},
      {{"--profile", "resnet50", "--faults", "crash:rank=8,at=1s"}, "expected 0 to 7"},
      {{"--profile", "resnet50", "--faults", "melt:rank=1,at=1s"}, "'melt'"},
      {{"--profile", "resnet50", "--emulate-speeds", "1,2,3"}, "do not divide 8 workers"},
      {{"--profile", "resnet50", "--sweep", "worker=1,2"}, "did you mean 'workers'"},
      {{"--profile", "resnet50", "--slowdowns", "every=1s"}, "for is missing"},
      {{"--profile", "resnet50", "--time", "0"}, "--time 0"},
      {{"--profile", "resnet50", "--set", "strategy.speed=1"}, "no option 'speed'"},
      {{"--profile", "resnet50", "--strategy", "dear", "--set", "strategy.fusion_start=1KB"},
       "strategy.fusion_start = '1KB'"},
      {{"--profile", "resnet50", "--strategy", "dear", "--set", "strategy.fusion=4MB", "--set",
        "strategy.fusion_start=2MiB"},
       "expected one of the two"},
      {{"--objective", "quadratic", "--dirichlet", "1"}, "does not use it"},
      {{"--objective", "model", "--model", "nope"}, "nope"},
      {{"--objective", "quadratic", "--device", "cuda"}, "--device: --objective quadratic"},
      {{"--objective", "model", "--device", "gpu"}, "--device gpu: expected cpu, cuda"},
      {{"--objective", "model", "--device", "cuda"}, "there is no GPU to use: "},
      {{"--swarm", "9..3"}, "--swarm 9..3"}};
  for (const auto& [words, text] : cases) {
    const auto end = simulate(words);
    EXPECT_EQ(end.code, 2) << text;
    EXPECT_NE(end.err.find(text), std::string::npos) << end.err;
  }
}

}  // namespace
}  // namespace skein::testing

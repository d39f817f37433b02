// gossip and acid as a user runs them: real processes, some of which are lost on the way.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

class GossipTraining : public ::testing::TestWithParam<std::string> {
 protected:
  Words job(const std::string& samples) const {
    return {"--workers",      "5",
            "--strategy",     GetParam(),
            "--model",        "cnn",
            "--lr",           "0.02",
            "--batch",        "4",
            "--samples",      samples,
            "--emulate-step", "12ms",
            "--out",          folder / "out",
            "--json",         folder / "run.json"};
  }

  // Starts a run and waits until it trains.
  std::unique_ptr<Process> start(const std::string& samples, const Words& more = {}) {
    auto run = std::make_unique<Process>(command(with(job(samples), more)));
    EXPECT_TRUE(
        eventually([&] { return count(contents(folder / "out/metrics.jsonl"), "\n") > 10; }));
    return run;
  }

  const Folder folder;
};

TEST_P(GossipTraining, LearnsWithoutGlobalCommunicationAndEndsWithOneModel) {
  // The rate falls to nothing: where the last gradients happen to lead says little otherwise.
  train_ok(with(job("4000"), {"--topology", "complete", "--rate", "1", "--eval-every", "1500",
                              "--checkpoint-every", "2000", "--schedule", "cosine"}));
  const Json run = json_of(folder / "run.json");
  EXPECT_GE(run["samples"], 4000);
  EXPECT_LT(run["samples"], 4200);
  EXPECT_GT(run["accuracy"], 0.4);
  std::int64_t computed = 0;
  for (const Json& worker : run["per_worker"]) {
    computed += worker["samples"].get<std::int64_t>();
    EXPECT_GT(worker["figures"]["averagings_per_gradient"], 0.3) << worker;
    EXPECT_TRUE(worker["figures"]["dead"].empty());
    EXPECT_GT(worker["figures"]["consensus_distance"], 0);
    EXPECT_EQ(worker["figures"]["consensus_distance"],
              run["per_worker"][0]["figures"]["consensus_distance"]);
  }
  EXPECT_NE(contents(folder / "out/metrics.jsonl").find("\"consensus_distance\""),
            std::string::npos);
  EXPECT_LE(run["samples"], computed);
  EXPECT_GE(count(contents(folder / "out/metrics.jsonl"), "\"kind\":\"evaluation\""), 3);
  train_ok(with(job("4000"), {"--topology", "complete", "--resume", folder / "out"}));
  EXPECT_EQ(json_of(folder / "run.json")["accuracy"], run["accuracy"])
      << "of the model that was saved";
}

// Rank 0, which writes for all, and another: the rest goes on, around them.
TEST_P(GossipTraining, GoesOnWithoutThoseThatAreKilled) {
  const auto run = start("3000");
  const std::vector<pid_t> workers = children_of(*run);
  ASSERT_EQ(workers.size(), 5u);
  ::kill(workers[0], SIGKILL);
  ::kill(workers[2], SIGKILL);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.err, "the others go on"), 2) << end.err;
  EXPECT_NE(end.out.find("lost rank 0, 2"), std::string::npos) << end.out << end.err;
  const Json result = json_of(folder / "run.json");
  EXPECT_GE(result["samples"], 3000);
  EXPECT_TRUE(result["per_worker"][0]["lost"]);
  EXPECT_FALSE(result["per_worker"][1].contains("lost"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
}

// Rank 0 writes metrics and holds the folder: both go on with the next that leads.
TEST_P(GossipTraining, KeepsItsFolderAndItsMetricsWhenTheLeaderIsKilled) {
  const auto run = start("100000000", {"--eval-every", "500"});
  const std::vector<pid_t> workers = children_of(*run);
  ASSERT_EQ(workers.size(), 5u);
  ::kill(workers[0], SIGKILL);
  const std::string metrics = folder / "out/metrics.jsonl";
  const auto lines = [&](const std::string& kind) {
    return count(contents(metrics), "\"kind\":\"" + kind + "\"");
  };
  ASSERT_TRUE(eventually([&] { return lines("leader") > 0; }));
  refused({"--workers", "1", "--samples", "64", "--overwrite", "--out", folder / "out"},
          {"a run is writing there now (process "});
  const int steps = lines("step"), evaluations = lines("evaluation");
  EXPECT_TRUE(
      eventually([&] { return lines("step") > steps && lines("evaluation") > evaluations; }));
  ::kill(run->pid(), SIGTERM);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 75) << end.err;
  const auto leaders = lines_of(metrics, "leader");
  ASSERT_EQ(leaders.size(), 1u);
  EXPECT_EQ(leaders[0]["rank"], 1);
  EXPECT_TRUE(json_of(folder / "run.json")["per_worker"][0]["lost"]);
  EXPECT_EQ(lines_of(metrics, "run").size(), 1u);
}

TEST_P(GossipTraining, TakesInAWorkerThatStoodStill) {
  const auto run = start("3000", {"--eval-every", "100000", "--deadline", "10000s"});
  const std::vector<pid_t> workers = children_of(*run);
  ASSERT_EQ(workers.size(), 5u);
  ::kill(workers[3], SIGSTOP);
  const int before = count(contents(folder / "out/metrics.jsonl"), "\n");
  EXPECT_TRUE(eventually([&] {
    return count(contents(folder / "out/metrics.jsonl"), "\n") > before + 20;
  })) << "the others wait for it";
  ::kill(workers[3], SIGCONT);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 0) << end.err;
  const Json result = json_of(folder / "run.json");
  for (const Json& worker : result["per_worker"]) {
    ASSERT_FALSE(worker.contains("lost")) << worker;
    EXPECT_TRUE(worker["figures"]["dead"].empty()) << worker;
  }
}

// It comes back when the others have ended: they have written everything, and it says so.
TEST_P(GossipTraining, AWorkerThatIsAwayTooLongWritesNothing) {
  const auto run = start("2000", {"--deadline", "10s"});
  const std::vector<pid_t> workers = children_of(*run);
  ASSERT_EQ(workers.size(), 5u);
  ::kill(workers[0], SIGSTOP);
  ASSERT_TRUE(eventually([&] { return children_of(*run).size() == 1; })) << run->err();
  EXPECT_TRUE(std::filesystem::exists(folder / "run.json"));
  ::kill(workers[0], SIGCONT);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("gone on without this worker"), std::string::npos) << end.err;
  const Json result = json_of(folder / "run.json");
  EXPECT_TRUE(result["per_worker"][0]["lost"]) << result["per_worker"];
  EXPECT_FALSE(result["per_worker"][1].contains("lost"));
}

// Nobody lets it go on: it alone is lost, and the launcher does not wait for it for ever.
TEST_P(GossipTraining, EndsWithoutOneThatStaysStopped) {
  const auto run = start("1500", {"--deadline", "10s"});
  const std::vector<pid_t> workers = children_of(*run);
  ASSERT_EQ(workers.size(), 5u);
  ::kill(workers[1], SIGSTOP);
  const Finished end = run->wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("rank 1 was stopped"), std::string::npos) << end.err;
  const Json result = json_of(folder / "run.json");
  for (std::size_t rank = 0; rank < 5; ++rank)
    EXPECT_EQ(result["per_worker"][rank].contains("lost"), rank == 1) << result["per_worker"];
  EXPECT_NE(end.out.find("lost rank 1"), std::string::npos) << end.out;
}

// Started by torchrun, workers share no board with a launcher.
TEST_P(GossipTraining, AWorkerOfTorchrunThatIsAwayTooLongWritesNothing) {
  constexpr int kSize = 3;
  for (const int stopped : {0, 2}) {
    const std::string out = folder / ("torchrun-" + std::to_string(stopped));
    std::vector<std::unique_ptr<Process>> workers;
    for (int rank = 0; rank < kSize; ++rank)
      workers.push_back(std::make_unique<Process>(
          command({"--strategy", GetParam(), "--model", "cnn", "--lr", "0.02", "--batch", "4",
                   "--samples", "1500", "--emulate-step", "12ms", "--deadline", "10s", "--out", out,
                   "--json", out + ".json"}),
          Process::Environment{{"RANK", std::to_string(rank)},
                               {"LOCAL_RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(kSize)},
                               {"LOCAL_WORLD_SIZE", std::to_string(kSize)},
                               {"MASTER_ADDR", "localhost"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", out}}));
    ASSERT_TRUE(eventually([&] { return count(contents(out + "/metrics.jsonl"), "\n") > 10; }));
    ::kill(workers[static_cast<std::size_t>(stopped)]->pid(), SIGSTOP);
    for (int rank = 0; rank < kSize; ++rank)
      if (rank != stopped) {
        const Finished end = workers[static_cast<std::size_t>(rank)]->wait();
        EXPECT_EQ(end.code, 0) << rank << end.err;
      }
    const std::string model = contents(out + "/model.safetensors"), json = contents(out + ".json");
    EXPECT_FALSE(model.empty());
    EXPECT_FALSE(json.empty());
    ::kill(workers[static_cast<std::size_t>(stopped)]->pid(), SIGCONT);
    const Finished end = workers[static_cast<std::size_t>(stopped)]->wait();
    EXPECT_EQ(end.code, 1) << end.err;
    EXPECT_NE(end.err.find("gone on without this worker"), std::string::npos) << end.err;
    EXPECT_TRUE(contents(out + "/model.safetensors") == model) << "written over";
    EXPECT_EQ(contents(out + ".json"), json) << "written over";
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, GossipTraining, ::testing::Values("gossip", "acid"));

TEST(GossipTrainingErrors, AreNamed) {
  const Words job{"--workers", "4", "--strategy", "acid", "--samples", "100"};
  refused(with(job, {"--topology", "rings"}), {"rings"});
  refused(with(job, {"--topology", "torus:3x3"}), {"torus:3x3"});
  refused(with(job, {"--rate", "0"}), {"--rate"});
  refused(with(job, {"--set", "strategy.strength=-1"}), {"strategy.strength"});
  refused(with(job, {"--data-split", "once"}), {"--data-split once", "expected own"});
  refused(with(job, {"--verify"}), {"--verify", "models of their own"});
  refused({"--workers", "2", "--strategy", "allreduce", "--rate", "1"}, {"--rate", "allreduce"});
}

}  // namespace
}  // namespace skein::testing

// Runs that are stopped by a system that wants its place back, and started again by the same
// command.
#include <signal.h>

#include <filesystem>

#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int kStopped = 75;

class Stop : public ::testing::Test {
 protected:
  std::string out() const { return folder / "out"; }

  Words job(const Words& more) const {
    return with({"--workers", "2", "--batch", "4", "--model", "cnn", "--samples", "1600",
                 "--emulate-step", "10ms", "--eval-every", "100000"},
                more);
  }
  Words again() const { return job({"--out", out(), "--resume", "auto"}); }

  // Whether so many lines of that kind are in the run's metrics, some time.
  bool comes_to(int steps) const {
    return eventually(
        [&] { return count(contents(out() + "/metrics.jsonl"), "\"kind\":\"step\"") >= steps; });
  }

  const Folder folder;
};

TEST_F(Stop, BySignalsOfAClusterSavesAndTheSameCommandGoesOnBitIdentically) {
  train_ok(job({"--out", folder / "whole"}));
  for (const auto& [signal, steps] : {std::pair(SIGUSR1, 10), std::pair(SIGTERM, 40)}) {
    Process run(command(again()));
    ASSERT_TRUE(comes_to(steps));
    ::kill(run.pid(), signal);
    const Finished end = run.wait();
    EXPECT_EQ(end.code, kStopped) << end.err;
    EXPECT_NE(end.out.find("not evaluated"), std::string::npos) << end.out;
    EXPECT_NE(end.err.find("--resume " + out()), std::string::npos) << end.err;
    EXPECT_FALSE(fs::exists(out() + "/model.safetensors")) << "that of the end, and of no other";
  }
  EXPECT_EQ(count(contents(out() + "/metrics.jsonl"), "\"kind\":\"evaluation\""), 0);
  train_ok(with(again(), {"--json", folder / "end.json"}));
  EXPECT_TRUE(json_of(folder / "end.json")["finished"].get<bool>());
  EXPECT_TRUE(same_bytes(folder / "whole/model.safetensors", out() + "/model.safetensors"));
  train_ok(again());  // there is nothing left to do
  EXPECT_TRUE(same_bytes(folder / "whole/model.safetensors", out() + "/model.safetensors"));
}

// A launcher of somebody else's may signal one of its processes only; strategies agree in their own
// ways.
TEST_F(Stop, OfOneWorkerIsThatOfAll) {
  for (const std::string strategy : {"allreduce", "lasgd", "acid"}) {
    const std::string own = folder / strategy;
    std::vector<std::unique_ptr<Process>> workers;
    for (const char* rank : {"0", "1"})
      workers.push_back(
          std::make_unique<Process>(command({"--batch", "4", "--samples", "1000000", "--strategy",
                                             strategy, "--out", own, "--json", own + ".json"}),
                                    Process::Environment{{"RANK", rank},
                                                         {"WORLD_SIZE", "2"},
                                                         {"LOCAL_RANK", rank},
                                                         {"LOCAL_WORLD_SIZE", "2"},
                                                         {"MASTER_ADDR", "localhost"},
                                                         {"MASTER_PORT", "29500"},
                                                         {"TORCHELASTIC_RUN_ID", own}}));
    ASSERT_TRUE(eventually(
        [&] { return count(contents(own + "/metrics.jsonl"), "\"kind\":\"step\"") > 5; }));
    ::kill(workers[1]->pid(), SIGUSR1);
    for (auto& worker : workers) {
      const Finished end = worker->wait();
      EXPECT_EQ(end.code, kStopped) << strategy << end.err;
    }
    EXPECT_FALSE(json_of(own + ".json")["finished"].get<bool>());
    EXPECT_TRUE(json_of(own + ".json")["accuracy"].is_null());
    EXPECT_FALSE(fs::is_empty(own + "/checkpoints"));
  }
}

TEST_F(Stop, ThatCameBeforeTheFirstCheckpointLeavesARunThatBeginsAgain) {
  fs::create_directories(out() + "/logs");
  std::ofstream(out() + "/run.json") << "{\"run_id\": \"0123456789abcdef\"}";
  std::ofstream(out() + "/metrics.jsonl") << "{\"kind\":\"step\",\"step\":1}\n";
  std::ofstream(out() + "/logs/rank-1.log") << "it was killed\n";
  train_ok(
      {"--workers", "2", "--batch", "4", "--samples", "16", "--out", out(), "--resume", "auto"});
  EXPECT_EQ(count(contents(out() + "/metrics.jsonl"), "\"kind\":\"step\""), 2);
  EXPECT_EQ(contents(out() + "/logs/earlier-1/rank-1.log"), "it was killed\n");
}

TEST_F(Stop, ResumingByItselfHasAFolderAndNothingToOverwrite) {
  refused(job({"--resume", "auto"}), {"--resume auto", "expected --out DIR"});
  refused(job({"--resume", "auto", "--out", out(), "--overwrite"}),
          {"--overwrite with --resume auto", "one of the two"});
  fs::create_directories(out());
  std::ofstream(out() + "/model.safetensors") << "somebody's work";
  refused(job({"--resume", "auto", "--out", out()}), {out(), "a model and no checkpoint"});
  EXPECT_EQ(contents(out() + "/model.safetensors"), "somebody's work");
}

}  // namespace
}  // namespace skein::testing

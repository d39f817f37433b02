// Evaluations and checkpoints of long runs: each mark once, however large the counts are.
#include <filesystem>
#include <fstream>

#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kFar = 50'000'021;  // beyond 2^24, and three times it is no float

// Lets the run believe that it has come so far already.
void set_samples(const std::string& checkpoint, std::int64_t samples) {
  Json state = json_of(checkpoint + "/state.json");
  state["samples"] = samples;
  std::ofstream(checkpoint + "/state.json") << state.dump();
  std::filesystem::remove(checkpoint + "/checksums.json");  // as older versions wrote it
}

class Marks : public ::testing::TestWithParam<std::string> {};

TEST_P(Marks, EachComesOnceBeyondTheCountsThatAFloatHolds) {
  const Folder folder;
  const Words job{"--workers", "3",    "--strategy", GetParam(), "--batch",
                  "8",         "--lr", "0.01",       "--set",    "model.width=4"};
  train_ok(with(job, {"--samples", "48", "--out", folder / "first"}));
  std::string newest;
  for (const auto& each : std::filesystem::directory_iterator(folder / "first/checkpoints"))
    newest = each.path().string();
  set_samples(newest, kFar);
  constexpr std::int64_t length = 600, every = 101;
  train_ok(with(job, {"--resume", newest, "--out", folder / "far", "--samples",
                      std::to_string(kFar + length), "--eval-every", std::to_string(every),
                      "--checkpoint-every", std::to_string(every), "--json", folder / "far.json"}));
  EXPECT_GE(json_of(folder / "far.json")["samples"], kFar + length);
  const auto evaluations = lines_of(folder / "far/metrics.jsonl", "evaluation");
  const auto end = json_of(folder / "far.json")["samples"].get<std::int64_t>();
  const std::int64_t marks = end / every - kFar / every;
  EXPECT_GE(std::ssize(evaluations), 1);
  EXPECT_LE(std::ssize(evaluations), marks + 1) << "those at marks and the last";
}

INSTANTIATE_TEST_SUITE_P(Strategies, Marks,
                         ::testing::Values("allreduce", "abs", "local", "lasgd", "gossip", "acid"));

// The one at the mark is given up; the one at the end, which the summary shows, is not.
TEST(Stopping, DoesNotWaitForAnEvaluation) {
  const Folder folder;
  Process run({kSkein,
               "train",
               "--quiet",
               "--workers",
               "2",
               "--model",
               "cnn",
               "--batch",
               "8",
               "--samples",
               "1000000",
               "--eval-every",
               "16",
               "--set",
               "data.train=640",
               "--set",
               "data.test=6000",
               "--out",
               folder / "out",
               "--json",
               folder / "run.json"});
  ASSERT_TRUE(eventually(
      [&] { return count(contents(folder / "out/metrics.jsonl"), "\"kind\":\"step\"") > 0; }));
  ::kill(run.pid(), SIGINT);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  const auto evaluations = lines_of(folder / "out/metrics.jsonl", "evaluation");
  ASSERT_EQ(evaluations.size(), 1u);
  EXPECT_EQ(evaluations[0]["accuracy"], json_of(folder / "run.json")["accuracy"]);
}

}  // namespace
}  // namespace skein::testing

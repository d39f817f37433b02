// `skein train --strategy abs` on real processes of different speed.
#include <nlohmann/json.hpp>
#include <sstream>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class AbsTrain : public ::testing::Test {
 protected:
  static Words command(const std::string& options) {
    Words argv{kSkein, "train", "--strategy", "abs", "--quiet"};
    std::istringstream words(
        "--model mlp --set model.width=64 --set data.train=640 "
        "--set data.test=40 --workers 4 --batch 4 --lr 0.01 --momentum 0.5 " +
        options);
    for (std::string word; words >> word;) argv.push_back(word);
    return argv;
  }

  void train(const std::string& options) {
    const Finished end = Process(command(options)).wait();
    ASSERT_EQ(end.code, 0) << end.err;
  }

  Json json(const std::string& name) const { return Json::parse(contents(folder / name)); }

  const Folder folder;
};

TEST_F(AbsTrain, FastWorkersComputeMore) {
  train(
      "--set strategy.delay=1 --samples 480 --eval-every 160 --emulate-speeds 1,1,2,4 "
      "--emulate-step 200ms "
      "--out " +
      (folder / "out") + " --trace " + (folder / "trace.json") + " --json " +
      (folder / "run.json"));
  const Json run = json("run.json");
  EXPECT_GE(run["samples"], 480);
  std::int64_t computed = 0;
  for (const Json& worker : run["per_worker"]) {
    computed += worker["samples"].get<std::int64_t>();
    const Json& figures = worker["figures"];
    EXPECT_EQ(figures["staleness"].size(), 1u) << figures;
    EXPECT_TRUE(figures["staleness"].contains("1")) << figures;
    EXPECT_EQ(figures["rounds"], run["figures"]["rounds"]);
    EXPECT_EQ(figures["round_samples"], run["figures"]["round_samples"]);
  }
  EXPECT_EQ(run["samples"], computed) << "what was computed was used, once";
  // The machine may be busy: not the numbers, but the order must hold.
  const auto micro_batches = [&](int rank) {
    return run["per_worker"][static_cast<std::size_t>(rank)]["micro_batches"].get<int>();
  };
  EXPECT_GT(micro_batches(2), micro_batches(0));
  EXPECT_GT(micro_batches(3), micro_batches(2));
  EXPECT_EQ(run["iterations"].get<int>() * 1.0,
            count(contents(folder / "out/metrics.jsonl"), "\"round_samples\""));
  EXPECT_GE(count(contents(folder / "trace.json"), "\"round\""), run["iterations"]);
}

// In a run of its own: a check after every round is a barrier, after which nobody is ahead.
TEST_F(AbsTrain, ReplicasStayEqual) {
  train(
      "--verify --samples 200 --eval-every 100 --emulate-speeds 1,1,2,4 --emulate-step 20ms "
      "--json " +
      (folder / "run.json"));
  EXPECT_GE(json("run.json")["samples"], 200);
}

// A user's own module and loop: programs/training_cases.cpp compares.
TEST_F(AbsTrain, WithoutDelayIsSynchronousSgd) {
  for (const char* workers : {"2", "4"}) {
    const Finished end = Process({kSkein, "run", "-n", workers, "--", kDearProgram, folder.path(),
                                  "0", "abs_without_delay"})
                             .wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
}

TEST_F(AbsTrain, GoesOnFromACheckpoint) {
  // However long a worker is held up, the others compute no more than that in a round.
  const std::string job =
      "--emulate-speeds 1,1,1,2 --emulate-step 5ms --set strategy.max_micro_batches=2 --verify "
      "--out " +
      (folder / "out");
  train(job + " --samples 320");
  ASSERT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  train(job + " --samples 640 --json " + (folder / "run.json") + " --resume " + (folder / "out"));
  EXPECT_GE(json("run.json")["samples"], 640);
  std::int64_t computed = 0;
  const Json workers = json("run.json")["per_worker"];
  for (const Json& worker : workers) computed += worker["samples"].get<std::int64_t>();
  EXPECT_LT(computed, 450) << "the first part was trained again";
}

TEST_F(AbsTrain, EndsWhenAWorkerIsKilled) {
  Process run(command("--samples 100000000 --emulate-step 5ms --out " + (folder / "out")));
  ASSERT_TRUE(eventually([&] { return count(contents(folder / "out/metrics.jsonl"), "\n") > 5; }));
  pid_t worker = 0;
  std::istringstream(contents("/proc/" + std::to_string(run.pid()) + "/task/" +
                              std::to_string(run.pid()) + "/children")) >>
      worker;
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "was killed by SIGKILL"), 1) << end.err;
}

TEST_F(AbsTrain, RefusesOptionsThatItDoesNotHave) {
  for (const auto& [option, said] : std::vector<std::pair<std::string, std::string>>{
           {"fusion=1MB", "strategy abs has no option 'fusion'"},
           {"lr_scaling=cubic", "expected none, linear or sqrt"},
           {"max_micro_batches=0", "expected a whole number from 1"},
           {"reference_batch=64", "expected lr_scaling = linear or sqrt"}}) {
    const Finished end = Process(command("--set strategy." + option)).wait();
    EXPECT_EQ(end.code, 2) << option;
    EXPECT_NE(end.err.find(said), std::string::npos) << end.err;
  }
}

}  // namespace
}  // namespace skein::testing

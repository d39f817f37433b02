// The folder of a run: one run a folder, and checkpoints that are whole or said not to be.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

namespace fs = std::filesystem;

const Words kJob{"--workers", "2", "--batch", "8", "--model", "mlp", "--set", "model.width=8"};

class RunFolder : public ::testing::Test {
 protected:
  std::string out() const { return folder / "out"; }

  Finished run(const Words& more) const { return train(with(kJob, more)); }

  void run_ok(const Words& more) const {
    const Finished end = run(more);
    ASSERT_EQ(end.code, 0) << end.err;
  }

  // Every file and what it holds.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(out()))
      if (entry.is_regular_file()) files[entry.path().string()] = contents(entry.path().string());
    return files;
  }

  std::set<std::string> saved() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(out() + "/checkpoints"))
      names.insert(entry.path().filename().string());
    return names;
  }

  static void damage(const std::string& path) {
    const auto at = static_cast<std::streamoff>(fs::file_size(path) - 40);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file.write("\xff\xff\xc0\x7f", 4);  // among other things a NaN
  }

  const Folder folder;
};

TEST_F(RunFolder, AnotherRunIsRefusedAndUntouched) {
  run_ok({"--samples", "128", "--checkpoint-every", "64", "--out", out()});
  const auto before = snapshot();
  const Finished end = run({"--samples", "64", "--seed", "2", "--out", out()});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
  for (const std::string& part :
       {out(), std::string("128 samples"), std::string("--resume"), std::string("--overwrite"),
        json_of(out() + "/run.json")["run_id"].get<std::string>()})
    EXPECT_NE(end.err.find(part), std::string::npos) << part << "\nin: " << end.err;
  EXPECT_EQ(snapshot(), before);
  run_ok({"--samples", "64", "--resume", out(), "--out", folder / "elsewhere"});
  EXPECT_EQ(snapshot(), before) << "it was only read";
}

bool has_ended(const Process& process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WEXITED | WNOHANG | WNOWAIT) ==
             0 &&
         info.si_pid == process.pid();
}

// Whichever comes first trains until both others have ended: they have touched nothing, neither
// logs nor metrics.
TEST_F(RunFolder, IsTakenByExactlyOneOfThreeRunsThatStartTogether) {
  std::vector<std::unique_ptr<Process>> runs;
  for (const char* seed : {"1", "2", "3"})
    runs.push_back(std::make_unique<Process>(
        command(with(kJob, {"--samples", "100000000", "--seed", seed, "--overwrite", "--out", out(),
                            "--json", folder / seed, "--emulate-step", "20ms"}))));
  const std::string metrics = out() + "/metrics.jsonl";
  ASSERT_TRUE(eventually([&] {
    return std::ranges::count_if(runs, [](const auto& run) { return has_ended(*run); }) >= 2 &&
           count(contents(metrics), "\"kind\":\"step\"") > 3;
  }));
  int winners = 0;
  std::string winner;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const bool trains = !has_ended(*runs[i]);
    if (trains) ::kill(runs[i]->pid(), SIGTERM);
    const Finished end = runs[i]->wait();
    if (trains) {
      ++winners;
      winner = folder / std::to_string(i + 1);
      EXPECT_EQ(end.code, 75) << end.err;
      continue;
    }
    EXPECT_EQ(end.code, 2) << end.err;
    EXPECT_NE(end.err.find("a run is writing there now (process "), std::string::npos) << end.err;
  }
  ASSERT_EQ(winners, 1);
  EXPECT_EQ(lines_of(metrics, "run").size(), 1u) << contents(metrics);
  std::int64_t steps = 0;
  for (const Json& step : lines_of(metrics, "step")) EXPECT_EQ(step["step"], ++steps) << step;
  EXPECT_EQ(json_of(winner)["run_id"], json_of(out() + "/run.json")["run_id"]);
  EXPECT_EQ(Process({kSkein, "checkpoints", out()}).wait().code, 0);
}

TEST_F(RunFolder, IsRefusedWhileARunWritesThere) {
  Process first(command(with(kJob, {"--samples", "100000000", "--out", out()})));
  ASSERT_TRUE(eventually([&] { return count(contents(out() + "/metrics.jsonl"), "step") > 2; }));
  const std::string id = json_of(out() + "/run.json")["run_id"];
  for (const Words& more :
       {Words{"--overwrite"}, Words{"--resume", out()}, Words{"--resume", "auto"}}) {
    const Finished end = run(with({"--samples", "64", "--out", out()}, more));
    EXPECT_EQ(end.code, 2) << end.err;
    EXPECT_NE(end.err.find("a run is writing there now (process "), std::string::npos) << end.err;
  }
  ::kill(first.pid(), SIGTERM);
  first.wait();
  EXPECT_EQ(json_of(out() + "/run.json")["run_id"], id);
  EXPECT_EQ(count(contents(out() + "/metrics.jsonl"), "\"kind\":\"run\""), 1);
  run_ok({"--samples", "64", "--overwrite", "--out", out()});
}

TEST_F(RunFolder, OverwritingLeavesNothingOfTheOtherRun) {
  run_ok({"--samples", "128", "--checkpoint-every", "64", "--out", out()});
  const Json first = json_of(out() + "/run.json");
  std::ofstream(out() + "/notes.txt") << "mine";
  run_ok({"--samples", "64", "--checkpoint-every", "16", "--keep-checkpoints", "2", "--seed", "2",
          "--out", out(), "--overwrite"});
  EXPECT_EQ(saved(), (std::set<std::string>{"48", "64"})) << "its own newest two";
  EXPECT_NE(json_of(out() + "/run.json")["run_id"], first["run_id"]);
  EXPECT_EQ(count(contents(out() + "/metrics.jsonl"), first["run_id"].get<std::string>()), 0);
  EXPECT_EQ(count(contents(out() + "/metrics.jsonl"), "\"kind\":\"step\""), 4);
  EXPECT_EQ(contents(out() + "/notes.txt"), "mine");
}

// A data folder that is not there is found by the workers, when the launcher has let them start.
TEST_F(RunFolder, ARunThatCannotStartRemovesNothing) {
  run_ok({"--samples", "64", "--out", out()});
  const std::string model = contents(out() + "/model.safetensors");
  EXPECT_EQ(run({"--data", "mnist:/nowhere", "--out", out(), "--overwrite"}).code, 2);
  EXPECT_EQ(contents(out() + "/model.safetensors"), model);
  EXPECT_EQ(saved(), (std::set<std::string>{"64"}));
}

TEST_F(RunFolder, AResumedRunIsTheSameRunAndContinuesItsMetrics) {
  run_ok({"--samples", "64", "--out", out()});
  const std::string id = json_of(out() + "/run.json")["run_id"];
  run_ok({"--samples", "128", "--out", out(), "--resume", out(), "--json", folder / "run.json"});
  EXPECT_EQ(json_of(out() + "/run.json")["run_id"], id);
  EXPECT_EQ(json_of(folder / "run.json")["run_id"], id);
  EXPECT_EQ(json_of(out() + "/checkpoints/128/state.json")["run_id"], id);
  const std::string metrics = contents(out() + "/metrics.jsonl");
  EXPECT_EQ(count(metrics, "\"kind\":\"run\""), 2);
  EXPECT_EQ(count(metrics, "\"run_id\":\"" + id + "\""), 2);
  EXPECT_EQ(count(metrics, "\"kind\":\"step\""), 8);
  run_ok({"--samples", "192", "--out", folder / "branch", "--resume", out()});
  const Json branch = json_of(folder / "branch/run.json");
  EXPECT_NE(branch["run_id"], id);
  EXPECT_EQ(branch["resumed_from"], id);
}

TEST_F(RunFolder, ADamagedCheckpointIsNamedAndTheOneBeforeIsTaken) {
  const Words job{"--samples", "128", "--checkpoint-every", "64", "--out", out()};
  run_ok(job);
  const std::string model = contents(out() + "/model.safetensors");
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "rank-1.safetensors"}) {
    damage(out() + "/checkpoints/128/" + file);
    const Finished listed = Process({kSkein, "checkpoints", out()}).wait();
    EXPECT_EQ(listed.code, 1) << listed.out;
    EXPECT_EQ(count(listed.out, "whole"), 1) << listed.out;
    EXPECT_EQ(count(listed.out, "DAMAGED"), 1) << listed.out;
    EXPECT_NE(listed.out.find(file), std::string::npos) << listed.out;
    const Finished end = run(with(job, {"--resume", out()}));
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_NE(end.err.find(std::string("checkpoints/128/") + file), std::string::npos) << end.err;
    EXPECT_EQ(contents(out() + "/model.safetensors"), model) << "it went on from 64, bit for bit";
    EXPECT_EQ(Process({kSkein, "checkpoints", out()}).wait().code, 0);
  }
  EXPECT_EQ(saved(), (std::set<std::string>{"128", "64", "set-aside-128"}));
}

TEST_F(RunFolder, WhereNoCheckpointIsWholeEachIsNamed) {
  run_ok({"--samples", "128", "--checkpoint-every", "64", "--out", out()});
  damage(out() + "/checkpoints/64/model.safetensors");
  const std::string state = out() + "/checkpoints/128/state.json";
  Json json = json_of(state);
  json["samples"] = -5;
  std::ofstream(state) << json.dump();
  fs::remove(out() + "/checkpoints/128/checksums.json");
  const Finished end = run({"--samples", "192", "--resume", out()});
  EXPECT_EQ(end.code, 2) << end.err;
  for (const char* part : {"128/state.json: samples = -5", "64/model.safetensors is damaged"})
    EXPECT_NE(end.err.find(part), std::string::npos) << end.err;
}

TEST_F(RunFolder, ACheckpointWithoutChecksumsIsTakenAndSaidToHaveNone) {
  run_ok({"--samples", "64", "--out", out()});
  fs::remove(out() + "/checkpoints/64/checksums.json");
  const Finished end = run({"--samples", "128", "--resume", out(), "--out", out()});
  EXPECT_EQ(end.code, 0);
  EXPECT_NE(end.err.find("no checksums"), std::string::npos) << end.err;
}

// Otherwise the run would remove what it saves, since larger numbers count as newer.
TEST_F(RunFolder, ARunThatGoesBackKeepsWhatItSavesFromThere) {
  run_ok({"--samples", "128", "--checkpoint-every", "64", "--out", out()});
  run_ok({"--samples", "96", "--out", out(), "--resume", out() + "/checkpoints/64"});
  EXPECT_EQ(saved(), (std::set<std::string>{"64", "96", "set-aside-128"}));
}

TEST_F(RunFolder, CheckpointsAreListed) {
  run_ok({"--samples", "128", "--checkpoint-every", "64", "--out", out()});
  const Finished end =
      Process({kSkein, "checkpoints", out(), "--json", folder / "list.json"}).wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.out, "whole"), 2) << end.out;
  const Json rows = json_of(folder / "list.json")["checkpoints"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["samples"], 64);
  EXPECT_EQ(rows[0]["steps"], 4);
  EXPECT_EQ(rows[1]["samples"], 128);
  EXPECT_EQ(rows[1]["whole"], true);
  EXPECT_GT(rows[1]["bytes"], 10000);
  EXPECT_EQ(rows[1]["run_id"], json_of(out() + "/run.json")["run_id"]);
  const Finished none = Process({kSkein, "checkpoints", folder.path()}).wait();
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("no checkpoints there"), std::string::npos) << none.err;
}

}  // namespace
}  // namespace skein::testing

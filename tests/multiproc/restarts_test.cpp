// `skein train --restarts`: workers that are killed, and what becomes of the run.
#include <sys/stat.h>

#include <thread>

#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "multiproc/train_command.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

class RestartsTrain : public ::testing::Test {
 protected:
  Words job(const std::string& samples, const Words& more) {
    return with({"--model", "mlp", "--set", "model.width=32", "--batch", "16", "--samples", samples,
                 "--checkpoint-every", "320", "--out", out()},
                more);
  }
  std::string out() const { return folder_ / "out"; }
  std::int64_t newest() const {
    const auto all = checkpoints_in(out());
    return all.empty() ? 0 : samples_of(all.back());
  }
  // When the run has saved something since, and has as many workers as it should.
  pid_t worker_to_kill(const Process& process, std::int64_t saved_after, std::size_t rank) {
    std::vector<pid_t> workers;
    EXPECT_TRUE(eventually([&] {
      workers = children_of(process);
      return newest() > saved_after && workers.size() > rank;
    })) << process.err();
    return workers.size() > rank ? workers[rank] : 0;
  }
  void kill_after(const Process& process, std::int64_t saved_after, std::size_t rank) {
    const pid_t worker = worker_to_kill(process, saved_after, rank);
    if (worker > 0) kill(worker, SIGKILL);
  }

  const Folder folder_;
};

TEST_F(RestartsTrain, ARunThatLosesTwoWorkersEndsAsIfItHadNot) {
  const Words long_enough{"--workers", "3", "--emulate-step", "10ms"};
  train_ok({"--model", "mlp", "--set", "model.width=32", "--batch", "16", "--samples", "24000",
            "--workers", "3", "--out", folder_ / "whole"});
  Process process(
      command(job("24000", with(long_enough, {"--restarts", "2", "--json", folder_ / "json"}))));
  kill_after(process, 640, 1);
  ASSERT_TRUE(eventually([&] { return count(process.err(), "restart 1 of 2") == 1; }));
  kill_after(process, newest(), 2);
  const Finished end = process.wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.err, "skein: rank 1 was killed by SIGKILL at step "), 1) << end.err;
  EXPECT_EQ(count(end.err, "skein: restart 2 of 2 in 1 s with 3 workers from "), 1) << end.err;
  const Json json = json_of(folder_ / "json");
  EXPECT_EQ(json["samples"], 24000);
  ASSERT_EQ(json["restarts"].size(), 2u) << json["restarts"];
  for (const Json& restart : json["restarts"]) {
    EXPECT_GE(restart["at_samples"], restart["resumed_from_samples"]);
    EXPECT_LE(restart["at_samples"], restart["resumed_from_samples"].get<int>() + 3 * 320);
    EXPECT_EQ(restart["workers"], 3);
  }
  const auto from = json["restarts"][0]["resumed_from_samples"].get<std::int64_t>();
  EXPECT_GT(from, 640);
  EXPECT_EQ(count(end.err, " from " + std::to_string(from) + " samples; "), 1) << end.err;
  EXPECT_EQ(json["restarts"][1]["why"].get<std::string>().rfind("rank 2 was killed", 0), 0u);
  EXPECT_TRUE(contents(folder_ / "whole/model.safetensors") ==
              contents(folder_ / "out/model.safetensors"));
}

TEST_F(RestartsTrain, WhenAllAreUsedUpTheRunFailsInOneBlockAndCanBeResumed) {
  const Words more{"--workers", "2", "--emulate-step", "5ms", "--restarts", "1"};
  Process process(command(job("100000000", more)));
  kill_after(process, 0, 0);
  ASSERT_TRUE(eventually([&] { return count(process.err(), "restart 1 of 1") == 1; }));
  kill_after(process, newest(), 1);
  const Finished end = process.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "the run has ended.\n"), 1) << end.err;
  EXPECT_EQ(count(end.err, "  restarts  1 of 1 were made\n"), 1) << end.err;
  EXPECT_EQ(count(end.err, "  resume  skein train "), 1) << end.err;
  const std::int64_t saved = newest();
  train_ok(job(std::to_string(saved + 3200),
               {"--workers", "2", "--restarts", "1", "--resume", out(), "--json", folder_ / "j"}));
  EXPECT_EQ(json_of(folder_ / "j")["samples"], saved + 3200);
  EXPECT_EQ(json_of(folder_ / "j")["restarts"].size(), 0u);
}

TEST_F(RestartsTrain, BeforeTheFirstCheckpointTheRunBeginsAgain) {
  Words words = command(job("3200", {"--workers", "2", "--restarts", "1", "--json", folder_ / "j",
                                     "--emulate-step", "40ms"}));
  *std::find(words.begin(), words.end(), "320") = "100000";
  Process process(words);
  ASSERT_TRUE(eventually(
      [&] { return count(contents(out() + "/metrics.jsonl"), "\"kind\":\"step\"") > 5; }));
  kill(children_of(process).at(1), SIGKILL);
  const Finished end = process.wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.err, " from 0 samples; those from 0 to "), 1) << end.err;
  EXPECT_EQ(json_of(folder_ / "j")["samples"], 3200);
}

// As a file server does for a host that has lost its power, somebody holds a lost worker's part of
// the folder's lock: for a while, and for ever.
TEST_F(RestartsTrain, TheLockOfALostWorkerDoesNotEndTheRun) {
  for (const bool for_ever : {false, true}) {
    std::filesystem::remove_all(out());
    Process process(command(job("9600", {"--workers", "2", "--restarts", "1", "--emulate-step",
                                         "5ms", "--deadline", "8s"})));
    const pid_t worker = worker_to_kill(process, 320, 1);
    FolderLock left;
    left.join(run_lock(out()));
    ASSERT_GT(worker, 0);
    kill(worker, SIGKILL);
    ASSERT_TRUE(eventually([&] { return count(process.err(), "restart 1 of 1") == 1; }));
    std::this_thread::sleep_for(2s);
    if (!for_ever) left = FolderLock();
    const Finished end = process.wait();
    EXPECT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(count(end.err, "has the lock of the folder still; the run goes on beside it"),
              for_ever ? 1 : 0)
        << end.err;
  }
}

TEST_F(RestartsTrain, AFailureThatRepeatsEndsTheRun) {
  const Finished end = train(job("32000", {"--workers", "2", "--restarts", "50", "--lr", "1e30"}));
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "the run fails where it failed before"), 1) << end.err;
  EXPECT_LE(count(end.err, "skein: restart "), 2) << end.err;
}

TEST_F(RestartsTrain, TheUsersErrorAndWishAreNoReasons) {
  const Finished wrong =
      train(job("320", {"--workers", "2", "--restarts", "5", "--set", "model.heads=7"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(count(wrong.err, "restart"), 0) << wrong.err;

  Process process(
      command(job("100000000", {"--workers", "2", "--restarts", "5", "--emulate-step", "5ms"})));
  ASSERT_GT(worker_to_kill(process, 0, 1), 0);
  kill(process.pid(), SIGINT);
  const Finished stopped = process.wait();
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_EQ(count(stopped.err, "skein: restart "), 0) << stopped.err;
}

TEST_F(RestartsTrain, CanBeInterruptedWhileItPauses) {
  Process process(
      command(job("100000000", {"--workers", "2", "--restarts", "5", "--emulate-step", "5ms"})));
  kill_after(process, 0, 1);
  ASSERT_TRUE(eventually([&] { return count(process.err(), "restart 1 of 5") == 1; }));
  kill(process.pid(), SIGINT);
  const Finished end = process.wait();
  EXPECT_TRUE(end.code == 130 || end.code == 75) << end.code << end.err;  // 75: it had begun anew
  EXPECT_EQ(count(end.err, "skein: restart "), 1) << end.err;
}

TEST_F(RestartsTrain, AHostThatIsGoneIsLeftOut) {
  const auto names = fabric_names();
  if (std::find(names.begin(), names.end(), "tcp") == names.end())
    GTEST_SKIP() << "no tcp fabric in this build";
  std::ofstream(folder_ / "ssh") << "#!/bin/sh\nif [ $1 = 127.0.0.2 ]; then\n"
                                 << "  [ -e " << folder_ / "gone"
                                 << " ] && exit 255\n"
                                 << "  echo $$ > " << folder_ / "pid"
                                 << "\nfi\n"
                                 << "shift; exec sh -c \"exec $*\"\n";
  chmod((folder_ / "ssh").c_str(), 0700);
  const Words more{"--hosts",        "127.0.0.1:2,127.0.0.2,127.0.0.3",
                   "--ssh",          folder_ / "ssh",
                   "--emulate-step", "20ms",
                   "--restarts",     "2",
                   "--json",         folder_ / "j"};
  Process process(command(job("12800", with(more, {"--min-workers", "3"}))));
  ASSERT_TRUE(eventually([&] { return newest() > 320; })) << process.err();
  std::ofstream(folder_ / "gone") << "x";
  kill(std::stoi(contents(folder_ / "pid")), SIGKILL);
  const Finished end = process.wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.err, "skein: rank 2 on 127.0.0.2 was lost with its host"), 1) << end.err;
  EXPECT_EQ(count(end.err, "the run goes on without that host, with 3 workers"), 1) << end.err;
  const Json json = json_of(folder_ / "j");
  EXPECT_EQ(json["workers"], 3);
  EXPECT_EQ(json["samples"], 12800);
  EXPECT_EQ(json["restarts"][0]["workers"], 3);
}

TEST_F(RestartsTrain, WhatDoesNotFitTogetherIsRefused) {
  const std::string dir = folder_ / "other";
  refused({"--restarts", "2"}, {"--restarts 2", "expected --out DIR and --checkpoint-every"});
  refused({"--restarts", "2", "--out", dir}, {"expected --out DIR and --checkpoint-every"});
  refused({"--restarts", "0"}, {"--restarts 0: expected a whole number from 1"});
  const Words kept{"--restarts", "2", "--out", dir, "--checkpoint-every", "320"};
  refused(with(kept, {"--strategy", "gossip", "--workers", "2"}),
          {"gossip goes on without lost workers"});
  refused(with(kept, {"--min-workers", "1", "--workers", "2"}),
          {"expected --restarts and --hosts"});
  refused(with(kept, {"--min-workers", "3", "--hosts", "a,b"}), {"the hosts have 2"});
  refused({"--min-workers", "1", "--hosts", "a,b"}, {"expected --restarts and --hosts"});
}

}  // namespace
}  // namespace skein::testing

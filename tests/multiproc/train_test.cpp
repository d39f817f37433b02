// `skein train` as a user runs it: real processes, real models.
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "multiproc/model_file.h"
#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

// The largest difference of any element, over the largest value of its tensor.
double worst_element(const std::string& one, const std::string& two) {
  const auto a = read_model(one), b = read_model(two);
  EXPECT_FALSE(a.empty());
  double worst = 0;
  for (const auto& [name, values] : a) {
    const auto& others = b.at(name);
    double scale = 1e-30, gap = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale = std::max<double>(scale, std::abs(values[i]));
      gap = std::max<double>(gap, std::abs(values[i] - others.at(i)));
    }
    worst = std::max(worst, gap / scale);
  }
  return worst;
}

class Equivalence : public ::testing::TestWithParam<Words> {};

// 20 steps: 4 workers x 8 samples each against 1 worker x 32. --verify: replicas bit-equal after
// each.
TEST_P(Equivalence, FourWorkersEqualOneWithTheWholeBatch) {
  const Folder folder;
  Words many{"--workers", "4",   "--batch",  "8",     "--samples",    "640",
             "--model",   "mlp", "--verify", "--out", folder / "many"};
  Words one{"--workers", "1",       "--batch", "32",    "--samples",
            "640",       "--model", "mlp",     "--out", folder / "one"};
  many.insert(many.end(), GetParam().begin(), GetParam().end());
  one.insert(one.end(), GetParam().begin(), GetParam().end());
  train_ok(many);
  train_ok(one);
  EXPECT_LE(difference(folder / "many/model.safetensors", folder / "one/model.safetensors"), 1e-6);
  // AdamW divides by the gradient's own size, so single weights with gradients near zero differ
  // more.
  const bool adamw = std::find(one.begin(), one.end(), "adamw") != one.end();
  if (!adamw) {
    EXPECT_LE(worst_element(folder / "many/model.safetensors", folder / "one/model.safetensors"),
              1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Equivalence,
                         ::testing::Values(Words{"--lr", "0.05", "--momentum", "0.9"},
                                           Words{"--lr", "0.05", "--momentum", "0.9", "--nesterov",
                                                 "--weight-decay", "0.01", "--no-decay-1d",
                                                 "--clip", "0.5"},
                                           Words{"--optimizer", "adamw", "--lr", "0.0001"}));

TEST(Train, UnevenLastBatchesAreWeighedBySamples) {
  const Folder folder;
  // 101 samples: three global batches of 32, then 5 samples, of which one worker gets two.
  train_ok({"--workers", "4", "--batch", "8", "--samples", "101", "--lr", "0.05", "--out",
            folder / "many", "--verify"});
  train_ok({"--workers", "1", "--batch", "32", "--samples", "101", "--lr", "0.05", "--out",
            folder / "one"});
  EXPECT_LE(difference(folder / "many/model.safetensors", folder / "one/model.safetensors"), 1e-6);
  // An epoch that ends with fewer samples than workers: two workers have none.
  train_ok({"--workers", "4", "--batch", "8", "--samples", "98", "--lr", "0.05", "--out",
            folder / "few", "--verify"});
  train_ok({"--workers", "1", "--batch", "32", "--samples", "98", "--lr", "0.05", "--out",
            folder / "few1"});
  EXPECT_LE(difference(folder / "few/model.safetensors", folder / "few1/model.safetensors"), 1e-6);
}

TEST(Train, AccumulatedMicroBatchesEqualOneBatch) {
  const Folder folder;
  train_ok({"--workers", "2", "--batch", "4", "--accumulate", "4", "--samples", "320", "--lr",
            "0.05", "--out", folder / "many"});
  train_ok({"--workers", "2", "--batch", "16", "--samples", "320", "--lr", "0.05", "--out",
            folder / "one"});
  EXPECT_LE(difference(folder / "many/model.safetensors", folder / "one/model.safetensors"), 1e-6);
}

// Trains a cnn and returns the file of its model.
std::string model_of(const Folder& folder, const std::string& name, Words more) {
  more.insert(more.end(), {"--batch", "8", "--samples", "240", "--model", "cnn"});
  more.insert(more.end(), {"--out", folder / name});
  train_ok(more);
  return folder / (name + "/model.safetensors");
}

TEST(Train, AnEmulatedLinkAndNoOverlapChangeNoBit) {
  const Folder folder;
  const auto with = [&](const std::string& name, Words more) {
    more.insert(more.end(), {"--workers", "3"});
    return model_of(folder, name, more);
  };
  const std::string plain = with("plain", {});
  EXPECT_TRUE(
      same_bytes(plain, with("link", {"--emulate-link", "1gbit", "--emulate-latency", "1ms"})));
  EXPECT_TRUE(same_bytes(plain, with("late", {"--set", "strategy.overlap=false"})));
  EXPECT_TRUE(same_bytes(plain, with("again", {})));
}

// Of three numbers or more the order in which they are added depends on where buckets end.
TEST(Train, OtherBucketsChangeNoBitOfTwoWorkers) {
  const Folder folder;
  const auto with = [&](const std::string& fusion) {
    return model_of(folder, fusion, {"--workers", "2", "--set", "strategy.fusion=" + fusion});
  };
  const std::string plain = with("auto");
  EXPECT_TRUE(same_bytes(plain, with("none")));
  EXPECT_TRUE(same_bytes(plain, with("64KB")));
}

TEST(Train, AResumedRunContinuesBitIdentically) {
  const Folder folder;
  // Batch norm has statistics of each worker's own; momentum, the data position and the schedule
  // count too.
  for (const char* model : {"cnn", "resnet18"}) {
    const std::string name = model;
    const Words job{"--workers", "2",          "--batch", "3",     "--model",
                    model,       "--schedule", "cosine",  "--set", "data.train=50"};
    const auto with = [&](Words more) {
      more.insert(more.end(), job.begin(), job.end());
      return more;
    };
    train_ok(with({"--samples", "80", "--checkpoint-every", "40", "--out", folder / name}));
    const std::string first = folder / (name + "/checkpoints/42");
    ASSERT_TRUE(std::filesystem::exists(first))
        << "a checkpoint after the first step past 40 samples";
    const Finished end =
        train(with({"--samples", "80", "--resume", first, "--out", folder / (name + "-resumed")}));
    ASSERT_EQ(end.code, 0) << end.err;
    EXPECT_EQ(count(end.out, "80 samples, 38 of them since it was resumed, in "), 1) << end.out;
    EXPECT_TRUE(same_bytes(folder / (name + "/model.safetensors"),
                           folder / (name + "-resumed/model.safetensors")))
        << name;
    EXPECT_TRUE(same_bytes(folder / (name + "/checkpoints/80/optimizer.safetensors"),
                           folder / (name + "-resumed/checkpoints/80/optimizer.safetensors")));
    EXPECT_TRUE(same_bytes(folder / (name + "/checkpoints/80/rank-1.safetensors"),
                           folder / (name + "-resumed/checkpoints/80/rank-1.safetensors")));
  }
}

TEST(Train, CtrlCSavesAndTheRunCanGoOnBitIdentically) {
  const Folder folder;
  const Words job{"--workers", "2",    "--batch",        "4",   "--model", "cnn",
                  "--samples", "1600", "--emulate-step", "10ms"};
  auto with = [&](Words more) {
    more.insert(more.end(), job.begin(), job.end());
    return more;
  };
  train_ok(with({"--out", folder / "whole"}));
  Process interrupted(command(with({"--out", folder / "part"})));
  ASSERT_TRUE(
      eventually([&] { return count(contents(folder / "part/metrics.jsonl"), "\n") > 20; }));
  ::kill(interrupted.pid(), SIGINT);
  const Finished end = interrupted.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  EXPECT_LT(count(contents(folder / "part/metrics.jsonl"), "\"step\""), 200);
  train_ok(with({"--resume", folder / "part", "--out", folder / "part"}));
  EXPECT_TRUE(same_bytes(folder / "whole/model.safetensors", folder / "part/model.safetensors"));
}

TEST(Train, AKilledWorkerEndsTheRunWithOneBlock) {
  const Folder folder;
  Process run(command(
      {"--workers", "4", "--samples", "100000000", "--model", "cnn", "--out", folder / "out"}));
  ASSERT_TRUE(eventually([&] { return count(contents(folder / "out/metrics.jsonl"), "\n") > 5; }));
  const std::vector<pid_t> workers = children_of(run);
  ASSERT_EQ(workers.size(), 4u) << "the launcher's children are the workers and nothing else";
  ::kill(workers[2], SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "was killed by SIGKILL"), 1) << end.err;
  EXPECT_EQ(count(end.err, "waiting for rank"), 3) << end.err;
  EXPECT_NE(end.err.find("logs"), std::string::npos) << end.err;
  for (const pid_t worker : workers)
    EXPECT_NE(::kill(worker, 0), 0) << "process " << worker << " is left";
}

TEST(Train, WritesEveryFigureAndATrace) {
  const Folder folder;
  train_ok({"--workers", "2", "--batch", "8", "--samples", "64", "--model", "cnn", "--out",
            folder / "out", "--json", folder / "run.json", "--trace", folder / "trace.json",
            "--target-accuracy", "0.99"});
  const Json run = json_of(folder / "run.json");
  for (const char* key : {"command",
                          "version",
                          "seed",
                          "config",
                          "strategy",
                          "workers",
                          "fabric",
                          "samples",
                          "seconds",
                          "samples_per_second",
                          "iterations",
                          "iteration_ms",
                          "loss",
                          "accuracy",
                          "bytes_sent",
                          "exposed_comm_ms",
                          "per_worker",
                          "seconds_to_target",
                          "startup_seconds",
                          "evaluation_seconds"})
    EXPECT_TRUE(run.contains(key)) << key;
  EXPECT_EQ(run["samples"], 64);
  EXPECT_EQ(run["iterations"], 4);
  EXPECT_GT(run["iteration_ms"]["p95"], 0);
  ASSERT_EQ(run["per_worker"].size(), 2u);
  EXPECT_EQ(run["per_worker"][1]["samples"], 32);
  EXPECT_EQ(run["per_worker"][1]["micro_batches"], 4);
  EXPECT_GT(run["bytes_sent"], 4 * run["parameters"].get<int>() * 4);
  EXPECT_EQ(count(contents(folder / "out/metrics.jsonl"), "\"kind\":\"step\""), 4);
  EXPECT_EQ(count(contents(folder / "out/metrics.jsonl"), "\"kind\":\"evaluation\""), 1);
  std::map<std::pair<int, std::string>, int> spans;
  const Json trace = json_of(folder / "trace.json");
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X") ++spans[{event["pid"].get<int>(), event["cat"].get<std::string>()}];
  for (const int rank : {0, 1})
    for (const char* lane : {"forward", "backward", "all-reduce", "update", "wait"})
      EXPECT_GE((spans[{rank, lane}]), 4) << rank << lane;
}

// What a worker's own thread did, by lane in ms; fails where two spans overlap.
std::map<std::string, double> own_time(const Json& trace, int rank, const std::string& left_out) {
  const std::set<std::string> own{"forward", "backward",   "update",    "wait",
                                  "loading", "evaluation", "checkpoint"};
  struct Span {
    double begin, end;
    std::string lane;
  };
  std::vector<Span> spans;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == rank && own.contains(event["cat"]) &&
        event["name"] != left_out)
      spans.push_back(
          {event["ts"], event["ts"].get<double>() + event["dur"].get<double>(), event["cat"]});
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::map<std::string, double> sums;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    sums[spans[i].lane] += (spans[i].end - spans[i].begin) / 1e3;
    if (i > 0) {
      EXPECT_LE(spans[i - 1].end, spans[i].begin + 0.01)
          << spans[i - 1].lane << " and " << spans[i].lane << " of rank " << rank;
    }
  }
  return sums;
}

TEST(Train, PartsOfItsTimeSumToTheWholeInTraceJsonMetricsAndTimeline) {
  for (const std::string strategy : {"dear", "allreduce", "abs", "lasgd"}) {
    SCOPED_TRACE(strategy);
    const Folder folder;
    train_ok({"--workers",
              "2",
              "--strategy",
              strategy,
              "--batch",
              "8",
              "--samples",
              "320",
              "--eval-every",
              "160",
              "--model",
              "mlp",
              "--set",
              "model.width=64",
              "--emulate-step",
              "4ms",
              "--emulate-link",
              "50mbit",
              "--timeline",
              "--trace",
              folder / "trace.json",
              "--json",
              folder / "run.json",
              "--out",
              folder / "out"});
    const Json run = json_of(folder / "run.json"), trace = json_of(folder / "trace.json");
    for (int rank = 0; rank < 2; ++rank) {
      const Json& row = run["per_worker"][rank];
      auto steps = own_time(trace, rank, "flush");
      const double waited = row["exposed_comm_ms"].get<double>() * run["iterations"].get<double>();
      if (strategy == "dear" || strategy == "allreduce") {
        EXPECT_NEAR(steps["wait"], waited, 1e-6 * waited) << "rank " << rank;
      }
      const double busy_part = row["busy_fraction"], waiting_part = row["waiting_fraction"];
      const double busy = steps["wait"] / waiting_part * busy_part;
      const double computed = steps["forward"] + steps["backward"];
      EXPECT_GE(busy, computed - 0.01);
      EXPECT_LE(busy, computed + steps["update"] + 0.01);
      EXPECT_LE(busy_part + waiting_part, 1 + 1e-9);
      EXPECT_GT(steps["evaluation"], 0);
      EXPECT_GT(steps["checkpoint"], 0);
      if (strategy == "dear") {
        double read = 0;
        for (const Json& event : trace["traceEvents"])
          if (event["pid"] == rank && event["name"] == "read")
            read += event["dur"].get<double>() / 1e3;
        EXPECT_GT(read, steps["forward"]) << "the link is slow, and forward is short";
      }
      // As the live page has it.
      auto all = own_time(trace, rank, "");
      std::map<std::string, double> usage;
      const std::string file = folder / ("out/timeline/rank-" + std::to_string(rank) + ".usage");
      std::istringstream in(contents(file));
      for (std::string text; std::getline(in, text);) {
        const Json line = Json::parse(text, nullptr, false);
        if (!line.is_object() || !line.contains("usage")) continue;
        const std::pair<const char*, int> columns[] = {
            {"forward", 1}, {"backward", 2},    {"update", 3},     {"wait", 4},
            {"loading", 9}, {"evaluation", 10}, {"checkpoint", 11}};
        for (const auto& [lane, column] : columns)
          usage[lane] += line["usage"][column].get<double>() / 1e3;
      }
      for (const auto& [lane, ms] : all) EXPECT_NEAR(usage[lane], ms, 0.05) << lane;
    }
    double logged = 0;
    for (const Json& line : lines_of(folder / "out/metrics.jsonl", "step"))
      logged += line["exposed_comm_ms"].get<double>();
    if (strategy == "dear" || strategy == "allreduce") {
      const double waited =
          run["per_worker"][0]["exposed_comm_ms"].get<double>() * run["iterations"].get<double>();
      EXPECT_NEAR(logged, waited, 1e-6 * waited);
    }
  }
}

TEST(Train, WritesDocumentsToStandardOutputAndAPipe) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  Process run(command({"--workers", "2", "--batch", "8", "--samples", "64", "--model", "mlp",
                       "--json", "-", "--trace", folder / "pipe"}));
  const Json trace = json_of(folder / "pipe");
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(Json::parse(end.out)["samples"], 64) << end.out;
  EXPECT_NE(end.err.find("64 samples"), std::string::npos) << end.err;
  std::set<int> ranks;
  for (const Json& event : trace["traceEvents"]) ranks.insert(event["pid"].get<int>());
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), "pipe");
  refused({"--json", "-", "--trace", "/dev/stdout"}, {"--json -", "--trace /dev/stdout"});
}

TEST(Train, Bfloat16LearnsAsFloat32Does) {
  const Folder folder;
  const auto accuracy = [&](const std::string& precision) {
    train_ok({"--workers", "2", "--batch", "16", "--epochs", "10", "--model", "cnn", "--precision",
              precision, "--verify", "--json", folder / precision, "--out",
              folder / ("out-" + precision)});
    return json_of(folder / precision)["accuracy"].get<double>();
  };
  const double rounded = accuracy("bf16"), exact = accuracy("f32");
  EXPECT_GT(exact, 0.5);
  EXPECT_GT(rounded, exact - 0.15);
  EXPECT_GT(difference(folder / "out-bf16/model.safetensors", folder / "out-f32/model.safetensors"),
            0)
      << "nothing was rounded";
}

TEST(Train, LearnsAtItsDefaults) {
  const Folder folder;
  const Finished end = Process({kSkein, "train", "--quiet", "--json", folder / "run.json"}).wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_GT(json_of(folder / "run.json")["accuracy"].get<double>(), 0.75);
}

TEST(Train, ARunThatIsResumedBeyondItsEndSaysSo) {
  const Folder folder;
  const Words job{"--out", folder / "out", "--batch", "8"};
  train_ok(with(job, {"--samples", "320"}));
  const Finished end = train(with(job, {"--samples", "64", "--resume", folder / "out"}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("has trained on 320 samples already, and this run is of 64: nothing is "
                         "left to train"),
            std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("--samples 384 would train on 64 more"), std::string::npos) << end.err;
}

TEST(Train, BalanceFollowsTheSpeeds) {
  const Folder folder;
  train_ok({"--workers", "2", "--batch", "16", "--samples", "1280", "--model", "mlp",
            "--emulate-speeds", "1,3", "--emulate-step", "60ms", "--set", "strategy.balance=true",
            "--json", folder / "b.json", "--verify"});
  const Json run = json_of(folder / "b.json");
  const double ratio =
      run["per_worker"][1]["samples"].get<double>() / run["per_worker"][0]["samples"].get<double>();
  EXPECT_GT(ratio, 2.0) << run["per_worker"];
  EXPECT_LT(ratio, 3.5) << run["per_worker"];
}

TEST(Train, RunsUnderOtherLaunchers) {
  const Folder folder;
  const Words job{"--batch", "8", "--samples", "64", "--model", "mlp"};
  Words torchrun = command(job), here = command(job);
  torchrun.insert(torchrun.end(), {"--out", folder / "torchrun"});
  std::vector<std::unique_ptr<Process>> workers;
  for (const char* rank : {"0", "1"})
    workers.push_back(std::make_unique<Process>(
        torchrun,
        Process::Environment{{"RANK", rank},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", rank},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},
                             {"MASTER_PORT", std::to_string(20000 + ::getpid() % 20000)}}));
  for (auto& worker : workers) {
    const Finished end = worker->wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
  here.insert(here.end(), {"--workers", "2", "--out", folder / "here"});
  EXPECT_EQ(Process(here).wait().code, 0);
  EXPECT_TRUE(same_bytes(folder / "here/model.safetensors", folder / "torchrun/model.safetensors"));
}

TEST(TrainErrors, WrongOptionsAreNamed) {
  refused({"--workers", "0"}, {"--workers", "0"});
  refused({"--strategy", "alreduce"}, {"alreduce", "allreduce"});
  refused({"--set", "strategy.fusoin=1MB"}, {"fusoin", "fusion"});
  refused({"--workers", "2", "--model", "cnnn"}, {"cnnn", "resnet18"});
  refused({"--workers", "2", "--set", "model.widht=3"}, {"widht", "width"});
  refused({"--emulate-link", "fast"}, {"fast", "1gbit"});
  refused({"--workers", "2", "--emulate-speeds", "1,2,3"}, {"--emulate-speeds"});
  refused({"--schedule", "cosin"}, {"cosin", "cosine"});
  refused({"--lr", "-1"}, {"--lr", "-1"});
  refused({"--fabric", "nccl"}, {"nccl"});
}

TEST(TrainErrors, ATruncatedDataFileIsNamed) {
  const Folder folder;
  for (int i = 1; i <= 5; ++i)
    std::ofstream(folder / ("data_batch_" + std::to_string(i) + ".bin"))
        << std::string(3073 * 10, '\1');
  std::ofstream(folder / "test_batch.bin") << std::string(3073 * 10 - 5, '\1');
  const Finished end =
      Process({kSkein, "train", "--quiet", "--workers", "2", "--data", "cifar10:" + folder.path()})
          .wait();
  EXPECT_EQ(end.code, 2);
  EXPECT_NE(end.err.find("test_batch.bin"), std::string::npos) << end.err;
  const Finished none = Process({kSkein, "train", "--quiet", "--data", "cifar10:/nowhere"}).wait();
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("/nowhere"), std::string::npos) << none.err;
}

TEST(TrainErrors, AnUnreadableCheckpointIsNamed) {
  const Folder folder;
  const Words job{"--workers", "2", "--batch", "8", "--samples", "64", "--model", "mlp"};
  auto with = [&](Words more) {
    more.insert(more.end(), job.begin(), job.end());
    return more;
  };
  train_ok(with({"--out", folder / "a"}));
  refused(with({"--resume", folder / "nothing"}), {"nothing"});
  refused(with({"--resume", folder / "a", "--seed", "9"}), {"seed"});
  const std::string model = folder / "a/checkpoints/64/model.safetensors";
  std::filesystem::resize_file(model, 1000);
  refused(with({"--resume", folder / "a"}), {"model.safetensors"});
  std::ofstream(folder / "a/checkpoints/64/state.json") << "{";
  refused(with({"--resume", folder / "a"}), {"state.json"});
}

TEST(TrainErrors, AFullDiskIsAnErrorAndLeavesNothingHalfWritten) {
  const Folder folder;
  if (::mount("skein-test", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "needs a small file system of its own, and mount() says: "
                 << std::strerror(errno);
  const Finished end = train({"--workers", "2", "--batch", "8", "--samples", "64", "--model", "mlp",
                              "--out", folder / "out"});
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_NE(end.err.find("No space left on device"), std::string::npos) << end.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/checkpoints/64"));
  ::umount(folder.path().c_str());
}

}  // namespace
}  // namespace skein::testing

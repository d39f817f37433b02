// `skein train` with workers that share a GPU.
#include <cmath>
#include <cstdio>

#include "gpu/gpu_command.h"
#include "multiproc/model_file.h"
#include "multiproc/paths.h"
#include "strategy/registry.h"

namespace skein::testing {
namespace {

// Glyphs that a cnn learns well in a few seconds.
Words lesson(const std::string& device, const Words& more) {
  return with({kSkein, "train", "--quiet", "--device", device, "--workers", "4", "--model", "cnn",
               "--batch", "16", "--set", "data.train=4000", "--set", "data.test=500"},
              more);
}

Json lesson_json(const Folder& folder, const std::string& device, const Words& more) {
  const std::string file = folder / (device + ".json");
  const Finished end = Process(lesson(device, with(more, {"--json", file}))).wait();
  EXPECT_EQ(end.code, 0) << end.err;
  return end.code == 0 ? json_of(file) : Json();
}

class EveryStrategyOnGpu : public OnGpu, public ::testing::WithParamInterface<std::string> {};

TEST_P(EveryStrategyOnGpu, LearnsAsOnTheCpu) {
  // Gradients that come a round late want less momentum.
  const Words rates =
      GetParam() == "abs"
          ? Words{"--momentum", "0.5", "--lr", "0.05", "--set", "strategy.max_micro_batches=2"}
          : Words{"--lr", "0.03"};
  const Words job = with({"--strategy", GetParam(), "--samples", "16000"}, rates);
  const Json gpu = lesson_json(folder_, "cuda", job), cpu = lesson_json(folder_, "cpu", job);
  ASSERT_TRUE(gpu.is_object() && cpu.is_object());
  EXPECT_EQ(gpu["device"], "cuda");
  EXPECT_EQ(cpu["device"], "cpu");
  EXPECT_GT(cpu["accuracy"], 0.8);
  // How many samples a round of abs has depends on the workers' speeds.
  const double tolerance = GetParam() == "abs" ? 0.12 : 0.07;
  EXPECT_GT(gpu["accuracy"].get<double>(), cpu["accuracy"].get<double>() - tolerance);
  for (const Json& worker : gpu["per_worker"]) {
    EXPECT_EQ(worker["device"].get<std::string>().rfind("cuda:", 0), 0u) << worker;
    EXPECT_GT(worker["device_memory_bytes"], 1 << 20) << worker;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategyOnGpu, ::testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

// --deterministic: the order in which a GPU adds is part of the seed.
class SameBitsOnGpu : public OnGpu {
 protected:
  std::string model(const std::string& name, Words more) {
    more = with(more, {"--deterministic", "--out", folder_ / name});
    const Finished end = Process(lesson("cuda", more)).wait();
    EXPECT_EQ(end.code, 0) << end.err;
    return folder_ / (name + "/model.safetensors");
  }
};

TEST_F(SameBitsOnGpu, DearIsAllreduce) {
  const std::string plain = model("allreduce", {"--strategy", "allreduce", "--samples", "3200"});
  EXPECT_TRUE(same_bytes(plain, model("again", {"--strategy", "allreduce", "--samples", "3200"})))
      << "not even allreduce is deterministic";
  EXPECT_TRUE(same_bytes(plain, model("dear", {"--strategy", "dear", "--samples", "3200"})));
  EXPECT_TRUE(same_bytes(
      plain, model("verified", {"--strategy", "allreduce", "--samples", "3200", "--verify"})));
}

TEST_F(SameBitsOnGpu, AResumedRunGoesOnAsIfItHadNotStopped) {
  for (const std::string strategy : {"allreduce", "dear", "local"}) {
    const Words job{"--strategy", strategy, "--momentum", "0.9"};
    const std::string whole = model(strategy + "-whole", with(job, {"--samples", "2560"}));
    model(strategy + "-parts", with(job, {"--samples", "1280"}));
    const std::string parts =
        model(strategy + "-parts",
              with(job, {"--samples", "2560", "--resume", folder_ / (strategy + "-parts")}));
    EXPECT_TRUE(same_bytes(whole, parts)) << strategy;
  }
}

class ResumesElsewhere : public OnGpu, public ::testing::WithParamInterface<std::string> {
 protected:
  // 40 steps in three parts, each on one of `devices`.
  std::string model(const std::vector<std::string>& devices) {
    std::string name;
    for (const std::string& device : devices) name += device;
    const std::string out = folder_ / name;
    for (int part = 1; part <= 3; ++part) {
      const std::string& device = devices[static_cast<std::size_t>(part - 1)];
      Words more{"--strategy", GetParam(), "--lr", "0.01", "--samples", std::to_string(part * 832),
                 "--out",      out};
      if (device == "cuda") more = with(more, {"--tf32", "off"});
      if (part > 1) more = with(more, {"--resume", out});
      const Finished end = Process(lesson(device, more)).wait();
      EXPECT_EQ(end.code, 0) << end.err;
    }
    return out + "/model.safetensors";
  }
};

// Not much further from a run on the CPU than one on the GPU alone, whose sums are rounded
// otherwise.
TEST_P(ResumesElsewhere, FromGpuToCpuAndBack) {
  const std::string host = model({"cpu", "cpu", "cpu"});
  const double rounding = difference(host, model({"cuda", "cuda", "cuda"}));
  EXPECT_LT(rounding, 0.03);
  EXPECT_LT(difference(host, model({"cuda", "cpu", "cuda"})), 2 * rounding);
  EXPECT_LT(difference(host, model({"cpu", "cuda", "cpu"})), 2 * rounding);
  RecordProperty("rounding", std::to_string(rounding));
  std::printf("from the CPU's model: %.6f by rounding alone\n", rounding);
}

INSTANTIATE_TEST_SUITE_P(Strategies, ResumesElsewhere,
                         ::testing::Values("allreduce", "dear", "local"),
                         [](const auto& info) { return info.param; });

// `wait` gives up long before the deadline.
TEST_F(OnGpu, AKilledWorkerEndsTheRunLongBeforeTheDeadline) {
  Process run(
      lesson("cuda", {"--epochs", "1000000", "--deadline", "10000s", "--out", folder_ / "out"}));
  const auto steps = [&] { return count(contents(folder_ / "out/metrics.jsonl"), "\"step\""); };
  ASSERT_TRUE(eventually([&] { return steps() > 20; })) << run.err();
  const auto workers = children_of(run);
  ASSERT_EQ(workers.size(), 4u);
  ::kill(workers[2], SIGKILL);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "rank 2 was killed by SIGKILL"), 1) << end.err;
  for (const pid_t worker : workers) EXPECT_NE(::kill(worker, 0), 0) << "a worker is left";
}

TEST_F(OnGpu, CtrlCSavesAndTheRunCanBeResumed) {
  const Words job{"--epochs", "1000000", "--out", folder_ / "out"};
  Process run(lesson("cuda", job));
  const auto steps = [&] { return count(contents(folder_ / "out/metrics.jsonl"), "\"step\""); };
  ASSERT_TRUE(eventually([&] { return steps() > 20; })) << run.err();
  ::kill(run.pid(), SIGINT);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 75) << end.err;
  const Finished resumed = Process(lesson("cuda", {"--samples", "64", "--out", folder_ / "out",
                                                   "--resume", folder_ / "out"}))
                               .wait();
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST_F(OnGpu, Bfloat16LearnsInChannelsLast) {
  const Words job{"--samples", "16000", "--lr", "0.03"};
  const Json exact = lesson_json(folder_, "cuda", job);
  const Json rounded = lesson_json(folder_, "cuda", with(job, {"--precision", "bf16"}));
  ASSERT_TRUE(exact.is_object() && rounded.is_object());
  EXPECT_EQ(rounded["precision"], "bf16");
  EXPECT_TRUE(rounded["channels_last"]);
  EXPECT_FALSE(exact["channels_last"]);
  EXPECT_GT(exact["accuracy"], 0.8);
  EXPECT_GT(rounded["accuracy"].get<double>(), exact["accuracy"].get<double>() - 0.07);
}

class OtherModelsOnGpu : public OnGpu {
 protected:
  void trains(const Words& job) {
    const Finished end =
        Process(with({kSkein, "train", "--quiet", "--device", "cuda", "--workers", "2"}, job))
            .wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
};

TEST_F(OtherModelsOnGpu, BatchNormStatisticsAreComputedAnew) {
  trains({"--model", "resnet18", "--samples", "512", "--set", "data.train=256", "--set",
          "data.test=50", "--bn-recompute", "2", "--eval-every", "256", "--precision", "bf16"});
}

TEST_F(OtherModelsOnGpu, TextIsLearntByAGpt) {
  std::ofstream text(folder_ / "text");
  for (int i = 0; i < 3000; ++i) text << "the order changes as they tire, " << i % 10;
  text.close();
  trains({"--model",     "gpt",
          "--data",      "text:" + folder_ / "text",
          "--set",       "data.context=32",
          "--set",       "model.width=64",
          "--set",       "model.depth=2",
          "--samples",   "1024",
          "--optimizer", "adamw",
          "--precision", "bf16",
          "--strategy",  "dear",
          "--clip",      "1",
          "--json",      folder_ / "gpt.json"});
  EXPECT_GT(json_of(folder_ / "gpt.json")["accuracy"], 0.5);
}

TEST_F(OnGpu, AutoTakesAWorkerPerGpu) {
  const Finished end =
      Process({kSkein, "train", "--quiet", "--samples", "64", "--set", "data.train=64", "--set",
               "data.test=10", "--json", folder_ / "run.json"})
          .wait();
  ASSERT_EQ(end.code, 0) << end.err;
  const Json run = json_of(folder_ / "run.json");
  EXPECT_EQ(run["workers"], doctor_.gpus);
  EXPECT_EQ(run["config"]["workers"], doctor_.gpus);
  for (int rank = 0; rank < doctor_.gpus; ++rank)
    EXPECT_EQ(run["per_worker"][static_cast<std::size_t>(rank)]["device"],
              "cuda:" + std::to_string(rank));
}

TEST_F(OnGpu, AGpuThatIsNotThereIsNamed) {
  const Finished end = Process(lesson("cuda:99", {})).wait();
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "--device cuda:99: this host has "), 1) << end.err;
}

// An emulated step is the host's: it waits for the GPU, then for the rest of the time.
TEST_F(OnGpu, AnEmulatedStepTakesItsTime) {
  const Json run = lesson_json(folder_, "cuda",
                               {"--samples", "1280", "--emulate-step", "60ms", "--emulate-speeds",
                                "1,1,2,2", "--emulate-link", "1gbit"});
  ASSERT_TRUE(run.is_object());
  EXPECT_GT(run["iteration_ms"]["p50"], 59);
}

}  // namespace
}  // namespace skein::testing

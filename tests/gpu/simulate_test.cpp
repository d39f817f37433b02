// `skein simulate --objective model` on a GPU: the times and events are those of the CPU, and so is
// what is learnt, as far as floating point allows.
#include <cmath>

#include "gpu/gpu_command.h"
#include "multiproc/paths.h"
#include "strategy/registry.h"

namespace skein::testing {
namespace {

Json simulated(const Folder& folder, const std::string& device, const Words& more) {
  const std::string file = folder / (device + ".json");
  const Finished end =
      Process(with({kSkein, "simulate", "--quiet", "--objective", "model", "--device", device,
                    "--workers", "4", "--batch", "16", "--emulate-step", "40ms", "--set",
                    "data.train=2000", "--set", "data.test=200", "--json", file},
                   more))
          .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  return end.code == 0 ? json_of(file) : Json();
}

class EveryStrategyInVirtualTime : public OnGpu,
                                   public ::testing::WithParamInterface<std::string> {};

TEST_P(EveryStrategyInVirtualTime, HasTheEventsOfTheCpuAndLearnsAlike) {
  const Words job{"--model", "cnn",  "--strategy", GetParam(), "--iterations",     "40",
                  "--lr",    "0.02", "--tf32",     "off",      "--emulate-speeds", "1,1,1,2"};
  const Json gpu = simulated(folder_, "cuda:0", job), cpu = simulated(folder_, "cpu", job);
  ASSERT_TRUE(gpu.is_object() && cpu.is_object());
  EXPECT_EQ(gpu["device"], "cuda:0");
  EXPECT_EQ(cpu["device"], "cpu");
  EXPECT_EQ(gpu["trace_hash"], cpu["trace_hash"]);
  EXPECT_EQ(gpu["seconds"], cpu["seconds"]);
  EXPECT_GT(gpu["device_memory_bytes"], 1 << 20);
  EXPECT_LT(cpu["loss"].get<double>(), 0.9 * cpu["curve"].front()["loss"].get<double>());
  EXPECT_NEAR(gpu["curve"].front()["loss"].get<double>(),
              cpu["curve"].front()["loss"].get<double>(), 1e-4);
  EXPECT_NEAR(gpu["loss"].get<double>(), cpu["loss"].get<double>(),
              0.05 * cpu["loss"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategyInVirtualTime,
                         ::testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

class ModelInVirtualTime : public OnGpu {};

// One seed, one result: again, and without graphs. Batch norm, so that buffers count, too.
TEST_F(ModelInVirtualTime, HasTheSameBitsAgainAndWithoutGraphs) {
  const Words job{"--model", "resnet18", "--strategy", "acid", "--iterations", "12"};
  const Json once = simulated(folder_, "cuda", job), again = simulated(folder_, "cuda", job),
             plain = simulated(folder_, "cuda", with(job, {"--graphs", "off"}));
  ASSERT_TRUE(once.is_object() && again.is_object() && plain.is_object());
  for (const Json* other : {&again, &plain}) {
    EXPECT_EQ(once["trace_hash"], (*other)["trace_hash"]);
    EXPECT_EQ(once["curve"], (*other)["curve"]);
    EXPECT_EQ(once["consensus"], (*other)["consensus"]);
  }
  EXPECT_TRUE(std::isfinite(once["loss"].get<double>()));
}

TEST_F(ModelInVirtualTime, ComputesInBfloat16) {
  const Words job{"--model", "cnn", "--iterations", "40", "--lr", "0.02"};
  const Json half = simulated(folder_, "cuda", with(job, {"--precision", "bf16"}));
  ASSERT_TRUE(half.is_object());
  EXPECT_LT(half["loss"].get<double>(), 0.9 * half["curve"].front()["loss"].get<double>());
}

}  // namespace
}  // namespace skein::testing

// How the time of an iteration is divided among the parameters: exactly, on a clock that moves only
// where the test says so, and roughly, on a real model.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>

#include "models/model.h"
#include "skein/error.h"
#include "test_net.h"
#include "train/simulate/layer_times.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

using Millis = std::chrono::milliseconds;

// Two parameters that are used one after the other, and one that is not used. Every part takes the
// time that it is told to.
struct PacedImpl : torch::nn::Module {
  explicit PacedImpl(ManualClock& clock)
      : clock(clock),
        first(register_parameter("first", torch::ones({3}))),
        second(register_parameter("second", torch::ones({5}))),
        unused(register_parameter("unused", torch::ones({7}))) {}

  void take(int ms) { clock.advance_to(clock.now() + Millis(ms)); }

  // The identity, whose gradient takes this long to compute.
  torch::Tensor slow_backward(const torch::Tensor& x, int ms) {
    x.register_hook([this, ms](const torch::Tensor&) { take(ms); });
    return x;
  }

  torch::Tensor forward() {
    take(1);
    torch::Tensor x = input;
    if (input.requires_grad()) x = slow_backward(x * 1, before);
    x = x * (swapped ? second.sum() : first.sum());
    take(2 + (at::hasCallbacks() ? hook_cost : 0));
    x = slow_backward(x, 8);
    x = x * (swapped ? first.sum() : second.sum());
    take(4);
    return slow_backward(x, 3).sum();
  }

  ManualClock& clock;
  torch::Tensor first, second, unused;
  torch::Tensor input = torch::ones({});
  int before = 0;        // backward below the first parameter, when the input wants a gradient
  int hook_cost = 0;     // in forward, while somebody watches it
  bool swapped = false;  // uses the parameters in the other order
};
TORCH_MODULE(Paced);

class LayerTimesTest : public testing::Test {
 protected:
  LayerTimes measure(int warmup = 0, int iterations = 3) {
    Binding binding(*net, allocate_on_heap);
    Workload workload;
    workload.load = [&] {
      net->take(100);
      ++loaded;
    };
    workload.forward = [&] { return net->forward(); };
    workload.update = [&] {
      net->take(loaded <= slow_updates ? 50 : 6);
      binding.gradient_plane().zero_();
    };
    return measure_layers(binding, workload, warmup, iterations, clock);
  }

  ManualClock clock;
  Paced net{clock};
  int loaded = 0, slow_updates = 0;
};

TEST_F(LayerTimesTest, DivideAnIterationAtReadsAndGradients) {
  const LayerTimes times = measure();
  ASSERT_EQ(times.layers.size(), 3u);
  EXPECT_EQ(times.layers[0].name, "first");
  EXPECT_EQ(times.layers[0].parameters, std::vector<std::int64_t>{3});
  EXPECT_EQ(times.layers[0].forward, Millis(1 + 2));
  EXPECT_EQ(times.layers[0].backward, Millis(8));
  EXPECT_EQ(times.layers[1].name, "second");
  EXPECT_EQ(times.layers[1].parameters, std::vector<std::int64_t>{5});
  EXPECT_EQ(times.layers[1].forward, Millis(4));
  EXPECT_EQ(times.layers[1].backward, Millis(3));
  EXPECT_EQ(times.update, Millis(6));
  EXPECT_TRUE(times.in_order);
}

TEST_F(LayerTimesTest, GiveNothingToAParameterThatIsNotUsed) {
  const LayerTimes times = measure();
  EXPECT_EQ(times.layers[2].name, "unused");
  EXPECT_EQ(times.layers[2].parameters, std::vector<std::int64_t>{7});
  EXPECT_EQ(times.layers[2].forward, Duration(0));
  EXPECT_EQ(times.layers[2].backward, Duration(0));
}

TEST_F(LayerTimesTest, LeaveOutWhatTheHookCosts) {
  net->hook_cost = 7;
  const LayerTimes times = measure();
  // 10 of 14 ms with the hook, scaled to the 7 ms without it.
  EXPECT_EQ(times.layers[0].forward, Millis(5));
  EXPECT_EQ(times.layers[1].forward, Millis(2));
}

TEST_F(LayerTimesTest, KeepTheOrderOfSlotsAndSayWhenItIsNotThatOfUse) {
  net->swapped = true;
  const LayerTimes times = measure();
  EXPECT_FALSE(times.in_order);
  EXPECT_EQ(times.layers[0].name, "first");
  EXPECT_EQ(times.layers[0].forward, Millis(4));
  EXPECT_EQ(times.layers[0].backward, Millis(3));
  EXPECT_EQ(times.layers[1].forward, Millis(1 + 2));
  EXPECT_EQ(times.layers[1].backward, Millis(8));
}

TEST_F(LayerTimesTest, KeepMuchBackwardBelowTheFirstParameterApart) {
  net->input.requires_grad_();
  net->before = 9;
  const LayerTimes times = measure();
  ASSERT_EQ(times.layers.size(), 4u);
  EXPECT_TRUE(times.layers[0].parameters.empty());
  EXPECT_EQ(times.layers[0].forward, Duration(0));
  EXPECT_EQ(times.layers[1].name, "first");
  Duration backward{};
  for (const sim::Layer& layer : times.layers) backward += layer.backward;
  EXPECT_EQ(backward, Millis(3 + 8 + 9));
}

TEST_F(LayerTimesTest, CountNoWarmupAndTakeMedians) {
  slow_updates = 4;  // the two iterations of the warm-up pair, and two of those that count
  EXPECT_EQ(measure(1, 3).update, Millis(6));
  EXPECT_EQ(loaded, 8);
  loaded = 0;
  EXPECT_EQ(measure(0, 2).update, Millis(50));
}

TEST_F(LayerTimesTest, LeaveNoHookBehind) {
  measure();
  EXPECT_FALSE(at::hasCallbacks());
  net->forward().backward();
}

ProfileOptions small_job(const std::string& model) {
  ProfileOptions options;
  options.job.model = model;
  options.job.device = "cpu";
  options.job.batch = 8;
  options.job.data_settings = {{"train", "64"}, {"test", "10"}};
  options.iterations = 5;
  options.warmup = 1;
  return options;
}

TEST(MeasureProfile, HasEveryTensorOfTheModelOnceInOrder) {
  World world = World::join();
  for (const std::string model : {"mlp", "cnn"}) {
    const sim::Profile profile = measure_profile(small_job(model), world);
    const auto net = make_model(model, {3, 32, 32}, 10, {});
    const Binding binding(*net, allocate_on_heap);
    std::size_t slot = 0;
    for (const sim::Layer& layer : profile.layers) {
      if (layer.parameters.empty()) continue;
      ASSERT_LT(slot, binding.arena().slots().size());
      EXPECT_EQ(layer.name, binding.arena().slots()[slot].name);
      EXPECT_EQ(layer.parameters, std::vector<std::int64_t>{binding.parameter(int(slot)).numel()});
      ++slot;
    }
    EXPECT_EQ(slot, binding.arena().slots().size());
    EXPECT_EQ(profile.name, model);
    EXPECT_EQ(profile.source.find("order of registration"), std::string::npos) << profile.source;
  }
}

TEST(MeasureProfile, TakesTimeAndSaysWhereItComesFrom) {
  World world = World::join();
  const Time begin = SteadyClock().now();
  const sim::Profile profile = measure_profile(small_job("mlp"), world);
  const Duration all = SteadyClock().now() - begin;
  EXPECT_GT(profile.forward(), Duration(0));
  EXPECT_GT(profile.backward(), Duration(0));
  EXPECT_GT(profile.update, Duration(0));
  EXPECT_LT((profile.forward() + profile.backward() + profile.update) * 5, all);
  for (const sim::Layer& layer : profile.layers) {
    EXPECT_GE(layer.forward, Duration(0)) << layer.name;
    EXPECT_GE(layer.backward, Duration(0)) << layer.name;
  }
  EXPECT_EQ(profile.batch, 8);
  EXPECT_TRUE(test::contains(profile.source,
                             {"measured: mlp on glyphs, batch 8, 1 thread, 5 iterations, "}));
}

TEST(MeasureProfile, AWideLayerIsTheExpensiveOne) {
  World world = World::join();
  ProfileOptions options = small_job("mlp");
  options.job.model_settings = {{"width", "1024"}, {"depth", "1"}};  // 3072 x 1024, 1024 x 10
  const sim::Profile profile = measure_profile(options, world);
  ASSERT_EQ(profile.tensors(), 4);
  const auto& layers = profile.layers;
  const std::size_t at = layers.size() - 4;
  const auto both = [&](std::size_t i) { return layers[i].forward + layers[i].backward; };
  EXPECT_GT(both(at) + both(at + 1), 3 * (both(at + 2) + both(at + 3)));
}

TEST(MeasureProfile, RefusesWhatTrainingRefuses) {
  World world = World::join();
  EXPECT_THROW(measure_profile(small_job("no such model"), world), ConfigError);
  ProfileOptions options = small_job("mlp");
  options.job.model_settings = {{"no such setting", "1"}};
  EXPECT_THROW(measure_profile(options, world), ConfigError);
}

}  // namespace
}  // namespace skein

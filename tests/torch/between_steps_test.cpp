// What programs do between steps, under every strategy: throw a batch away, make a step without
// samples, ask for the rate, write to parameters.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "on_workers.h"
#include "skein/torch.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::between_steps_test {
namespace {

using test::flat_parameters;
using test::on_workers;
using test::same_on_all;

constexpr std::int64_t kBatch = 8;

torch::Tensor loss_of(torch::nn::Linear& net, const World& world, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + world.rank()));
  return net->forward(torch::randn({kBatch, 4})).square().mean();
}

torch::Tensor flat(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> all;
  for (const NamedTensor& each : tensors) all.push_back(each.tensor.detach().reshape({-1}));
  return torch::cat(all).clone();
}

class BetweenSteps : public testing::TestWithParam<const char*> {};

// With an optimizer that moves the model even where gradients are zero.
TEST_P(BetweenSteps, AStepInWhichNobodyHasSamplesIsNoUpdate) {
  for (const int workers : {1, 2})
    on_workers(workers, [](World& world) {
      const std::string name = GetParam();
      torch::manual_seed(1);
      torch::nn::Linear net(4, 1);
      auto run =
          distribute(world, *net, adamw(0.01).weight_decay(0.1).clip(1.0), StrategySpec(name));
      run.keep_ema(0.5);
      for (int step = 0; step < 5; ++step) {
        loss_of(net, world, step).backward();
        run.step(kBatch);
      }
      run.flush();
      const auto before = flat_parameters(*net),
                 average = flat(run.impl().averages().ema()->values());
      const std::int64_t steps = run.steps(), samples = run.samples();
      int asked = 0;
      run.before_update([&](AveragedGradients&) { ++asked; });
      for (int step = 0; step < 3; ++step) {
        run.expect(0);
        (loss_of(net, world, step) * NAN).backward();
        run.step(0);
      }
      for (int step = 0; step < 2; ++step) run.step(0);  // nothing is announced
      run.flush();
      // Workers of gossip and acid go on averaging, which rounds.
      const double rounding = name == "gossip" || name == "acid" ? 1e-6 : 0;
      EXPECT_TRUE(torch::allclose(flat_parameters(*net), before, rounding, rounding));
      EXPECT_TRUE(torch::equal(flat(run.impl().averages().ema()->values()), average));
      EXPECT_EQ(run.steps(), steps);
      EXPECT_EQ(run.samples(), samples);
      EXPECT_EQ(asked, 0);
      // What a step without samples says of the next one is nothing.
      run.before_update(nullptr);
      loss_of(net, world, 9).backward();
      run.step(kBatch);
      run.flush();
      EXPECT_EQ(run.samples(), samples + kBatch * world.size());
      EXPECT_TRUE(flat_parameters(*net).isfinite().all().item<bool>());
      EXPECT_FALSE(torch::allclose(flat_parameters(*net), before));
    });
}

// The gradient is 1 for everybody, but for what rank 0 throws away.
TEST_P(BetweenSteps, ADiscardedBatchLeavesNothing) {
  for (const int workers : {1, 2})
    on_workers(workers, [](World& world) {
      torch::nn::Linear net(1, 1);
      auto run = distribute(world, *net, sgd(0.01), StrategySpec(GetParam()));
      const auto backward = [&](float gradient) { (net->bias * gradient).sum().backward(); };
      const float before = net->bias.item<float>();
      for (const float discarded : {100.0F, INFINITY}) {
        const bool discards = world.rank() == 0;
        run.expect(discards ? 0 : kBatch);
        backward(discards ? discarded : 1);
        run.step(discards ? 0 : kBatch);
        run.expect(kBatch);
        backward(1);
        run.step(kBatch);
      }
      run.flush();
      EXPECT_EQ(run.samples(), kBatch * (4 * world.size() - 2));
      EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
      // Two to five updates of 0.01: as many as there were steps, or rounds.
      EXPECT_GT(before - net->bias.item<float>(), 0.015);
      EXPECT_LT(before - net->bias.item<float>(), 0.07);
    });
}

INSTANTIATE_TEST_SUITE_P(Strategies, BetweenSteps,
                         testing::Values("allreduce", "dear", "abs", "local", "lasgd", "gossip",
                                         "acid"));

TEST(WithoutOverlap, AShortLastBatchNeedsNoAnnouncement) {
  for (const char* name : {"allreduce", "dear"})
    on_workers(2, [&](World& world) {
      const auto trained = [&](bool announced) {
        torch::manual_seed(1);
        torch::nn::Linear net(4, 1);
        auto run = distribute(world, *net, sgd(0.1).momentum(0.9),
                              StrategySpec(name).set("overlap", "false"));
        const std::int64_t last = world.rank() == 0 ? 3 : 5;
        for (const std::int64_t samples : {kBatch, kBatch, last, kBatch, last}) {
          if (announced) run.expect(samples);
          loss_of(net, world, static_cast<int>(samples)).backward();
          run.step(samples);
        }
        run.flush();
        EXPECT_EQ(run.samples(), 2 * (3 * kBatch + 4 + 4));
        return flat_parameters(*net);
      };
      EXPECT_TRUE(torch::equal(trained(false), trained(true)));
    });
}

// Of all samples that were trained on, of which the other workers' are not known yet.
TEST(LearningRate, IsThatOfTheNextStepBetweenMergesToo) {
  for (const char* name : {"local", "lasgd"})
    on_workers(2, [&](World& world) {
      torch::nn::Linear net(4, 1);
      auto run = distribute(world, *net, sgd(0.1).schedule("constant:warmup=800", 100000),
                            StrategySpec(name).set("period", "30"));
      for (int step = 0; step < 70; ++step) {
        EXPECT_NEAR(run.learning_rate(), 0.1 * std::min(1.0, step * 2 * kBatch / 800.0), 1e-12)
            << name << " step " << step;
        loss_of(net, world, step).backward();
        run.step(kBatch);
      }
      run.flush();
      EXPECT_EQ(run.samples(), 70 * 2 * kBatch);
    });
}

// Under abs parameters are ahead of the weights between steps: a write there would be lost.
TEST(AbsLookahead, RefusesWritesThatWouldBeLostAndTakesThoseAfterAFlush) {
  on_workers(2, [](World& world) {
    torch::nn::Linear net(4, 1);
    auto run = distribute(world, *net, sgd(0.01).momentum(0.9), abs_sgd());
    const auto write = [&](double value) {
      for (torch::Tensor& each : net->parameters()) each.data().fill_(value);
    };
    for (const double value : {3.0, -2.0}) {
      run.flush();
      write(value);
      for (torch::Tensor& each : net->parameters()) each.sum().backward();
      run.step(kBatch);
      run.flush();
      EXPECT_NEAR(net->bias.item<float>(), value, 0.05);
      EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
    }
    std::string said;
    try {
      for (int step = 0; step < 20; ++step) {
        loss_of(net, world, step).backward();
        run.step(kBatch);
        write(0.5);
      }
      run.flush();
    } catch (const ConfigError& error) {
      said = error.what();
    }
    EXPECT_NE(said.find("Expected flush() before it"), std::string::npos) << said;
  });
}

}  // namespace
}  // namespace skein::between_steps_test

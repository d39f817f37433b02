// Optimizers of a user's own, elementwise and of whole tensors: against plain loops.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "on_workers.h"
#include "own_optimizers.h"
#include "skein/torch.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::own_optimizers_test {
namespace {

using namespace test;

const char* const kTakePerTensor[] = {"allreduce", "abs", "local", "lasgd", "gossip", "acid"};

TEST(PerTensor, HasTheBitsOfAPlainLoopUnderEveryStrategyButDear) {
  on_workers(1, [](World& world) {
    for (const char* strategy : kTakePerTensor) {
      EveryLayer want = fresh_net(), net = fresh_net();
      WholeLamb optimizer(want->parameters(), MineOptions(0.02));
      Distributed run = distribute(world, *net, torch_optimizer<WholeLamb>(MineOptions(0.02)),
                                   StrategySpec(strategy));
      for (std::int64_t step = 0; step < 6; ++step) {
        optimizer.zero_grad();
        test::loss_at(want, step).backward();
        optimizer.step();
        test::loss_at(net, step).backward();
        run.step(4);
      }
      run.flush();
      expect_same_bits(want, net, 6);
    }
  });
}

// Larger than any piece in which vectors are gone through: of the cache, of a thread, of a look
// ahead.
torch::nn::Sequential large_net() {
  torch::manual_seed(5);
  return torch::nn::Sequential(torch::nn::Linear(1100, 1000), torch::nn::Tanh(),
                               torch::nn::Linear(1000, 3));
}

torch::Tensor large_loss(torch::nn::Sequential& net, std::int64_t step) {
  const auto x = torch::sin(torch::arange(2 * 1100, torch::kFloat32) * 0.37 + double(step));
  return net->forward(x.reshape({2, 1100})).square().mean();
}

TEST(PerTensor, SeesWholeTensorsOfLargeModelsOnSeveralWorkers) {
  on_workers(2, [](World& world) {
    auto want = large_net();
    WholeLamb optimizer(want->parameters(), MineOptions(0.02));
    for (std::int64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      ((large_loss(want, 2 * step) + large_loss(want, 2 * step + 1)) / 2).backward();
      optimizer.step();
    }
    for (const char* strategy : kTakePerTensor) {
      auto net = large_net();
      Distributed run = distribute(world, *net, torch_optimizer<WholeLamb>(MineOptions(0.02)),
                                   StrategySpec(strategy));
      for (std::int64_t step = 0; step < 4; ++step) {
        large_loss(net, 2 * step + world.rank()).backward();
        run.step(2);
      }
      run.flush();
      const auto mine = flat_parameters(*net);
      EXPECT_TRUE(mine.isfinite().all().item<bool>()) << strategy;
      const auto lengths = world.gather({mine.norm().item<double>()});
      EXPECT_EQ(lengths[0], lengths[1]) << strategy;
      if (std::string(strategy) == "allreduce") {
        EXPECT_TRUE(torch::allclose(mine, flat_parameters(*want), 1e-4, 1e-6));
      }
    }
  });
}

TEST(PerTensor, IsRefusedByDearWhichCutsTensors) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net();
    const auto said = message_of<ConfigError>(
        [&] { distribute(world, *net, torch_optimizer<WholeLamb>(MineOptions(0.02)), dear()); });
    EXPECT_TRUE(contains(said, {"dear", "PerTensor", "allreduce"}));
  });
}

TEST(OwnOptimizers, HaveTheBitsOfAPlainLoop) {
  on_workers(1, [&](World& world) {
    EveryLayer want = fresh_net(), net = fresh_net();
    Lion optimizer(want->parameters(), MineOptions(0.01));
    Distributed run = distribute(world, *net, torch_optimizer<Lion>(MineOptions(0.01)));
    for (std::int64_t step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      test::loss_at(want, step).backward();
      optimizer.step();
      test::loss_at(net, step).backward();
      run.step(4);
      expect_same_bits(want, net, step);
    }
    EXPECT_EQ(run.impl().optimizer().state().count("exp_avg"), 1U);
  });
}

TEST(OwnOptimizers, HaveTheSameBitsInShards) {
  on_workers(3, [](World& world) {
    const auto trained = [&](const OptimizerSpec& optimizer, const char* strategy) {
      EveryLayer net = fresh_net();
      Distributed run = distribute(world, *net, optimizer, StrategySpec(strategy));
      for (std::int64_t step = 0; step < 6; ++step) {
        test::loss_at(net, 3 * step + world.rank()).backward();
        run.step(4);
      }
      run.flush();
      return flat_parameters(*net);
    };
    for (const auto& optimizer :
         {torch_optimizer<Lion>(MineOptions(0.01)), torch_optimizer<SignSgd>(MineOptions(0.01))})
      EXPECT_TRUE(torch::equal(trained(optimizer, "allreduce"), trained(optimizer, "dear")));
  });
}

TEST(OwnOptimizers, ThatAreNotElementwiseAreRefused) {
  on_workers(1, [&](World& world) {
    EveryLayer net = fresh_net();
    const auto said = [&](const OptimizerSpec& spec) {
      return message_of<ConfigError>([&] { distribute(world, *net, spec); });
    };
    EXPECT_TRUE(contains(said(torch_optimizer<Lamb>(MineOptions(0.1))),
                         {"Lamb", "not elementwise", "norm of a tensor", "skein::PerTensor"}));
    EXPECT_TRUE(contains(
        said(torch_optimizer<SignSgd>(MineOptions(0.1)).group(group("*.bias").weight_decay(0))),
        {"weight decay", "SignSgd"}));
  });
}

}  // namespace
}  // namespace skein::own_optimizers_test

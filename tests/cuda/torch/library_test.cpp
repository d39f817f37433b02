// What a program of a user's own calls besides step(), with a module on a GPU: checkpoints, loss
// scaling in half precision, tensors of all workers. In forked workers, as in distributed_test.cpp.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "skein/loss_scaler.h"
#include "skein/torch.h"
#include "skein/torch_tensors.h"
#include "torch/on_workers.h"
#include "torch/own_optimizers.h"
#include "torch/resuming_job.h"

namespace skein::library_on_gpu_test {
namespace {

using namespace test;

const torch::Device kGpu(torch::kCUDA, 0);

class LibraryOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is no /dev/nvidiactl";
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);  // the same bits every time
  }
};

// Dropout and data draw from the GPU's generator, which a checkpoint must hold, too.
TEST_F(LibraryOnGpu, OneWorkerResumesBitForBitUnderEveryStrategy) {
  const TemporaryFolder folder;
  on_workers(1, [&](World& world) { expect_all_resumed(world, all_strategies(), folder, kGpu); });
}

TEST_F(LibraryOnGpu, WorkersResumeBitForBitWhereTheStrategyPromisesIt) {
  const TemporaryFolder folder;
  on_workers(3, [&](World& world) { expect_all_resumed(world, exact_strategies(), folder, kGpu); });
}

TEST_F(LibraryOnGpu, AnOptimizerOfWholeTensorsResumesBitForBit) {
  const TemporaryFolder folder;
  const Start lamb = [](World& world, torch::nn::Module& net, const StrategySpec& strategy) {
    return distribute(world, net, torch_optimizer<WholeLamb>(MineOptions(0.02)), strategy);
  };
  on_workers(2, [&](World& world) {
    expect_resumed_bits(world, lamb, allreduce(), folder / "lamb", kGpu);
  });
}

// A checkpoint of a GPU is one of the CPU, too: nothing in it says where the model was.
TEST_F(LibraryOnGpu, ACheckpointGoesOnOnTheCpu) {
  const TemporaryFolder folder;
  on_workers(2, [&](World& world) {
    const Start start = optimizers()[0].second;
    ResumingJob first(world, start, dear(), 1, 8, kGpu);
    first.steps(5);
    first.run().save_checkpoint(folder / "gpu", {}, {.wait = true});
    const auto expected = first.state();
    ResumingJob again(world, start, dear(), 2, 8, torch::kCPU);
    ASSERT_TRUE(again.run().resume(folder / "gpu"));
    const auto found = again.state();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(torch::equal(found[i], expected[i].cpu())) << i;
    again.steps(3);
    EXPECT_EQ(again.run().steps(), 8);
  });
}

torch::nn::Sequential half_net() {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(16, 64), torch::nn::Tanh(), torch::nn::Linear(64, 4));
  net->to(kGpu);
  return net;
}

// Gradients of a loss this small are below what float16 can hold.
torch::Tensor small_loss(torch::nn::Sequential& net, World& world, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + world.rank()));
  const auto x = torch::randn({32, 16}, kGpu);
  const auto target = x.narrow(1, 0, 4);
  const auto half = [](const torch::Tensor& in, const torch::nn::Module& layer) {
    const auto named = layer.named_parameters();
    return torch::linear(in, named["weight"].to(torch::kHalf), named["bias"].to(torch::kHalf));
  };
  const auto out = half(torch::tanh(half(x.to(torch::kHalf), *net->ptr(0))), *net->ptr(2));
  EXPECT_EQ(out.scalar_type(), torch::kHalf);
  return (out.to(torch::kFloat32) - target).square().mean() * 1e-7;
}

// Without a scaler the loss teaches nothing. With one, a first factor that overflows is taken back
// on all workers alike until gradients fit, and all learn the same.
TEST_F(LibraryOnGpu, LossScalingSavesSmallGradientsOfHalfPrecision) {
  for (const char* strategy : {"allreduce", "dear"})
    on_workers(2, [strategy](World& world) {
      const auto trained = [&](bool scaled) {
        auto net = half_net();
        LossScaler scaler({.initial = std::exp2(50), .most = std::exp2(50)});
        const torch::Tensor before = small_loss(net, world, 999).detach();
        {
          Distributed run = distribute(world, *net, sgd(3e5), StrategySpec(strategy));
          if (scaled) run.before_update([&](AveragedGradients& g) { scaler.unscale(g); });
          for (int step = 0; step < 60; ++step) {
            const torch::Tensor loss = small_loss(net, world, step);
            (scaled ? scaler.scale(loss) : loss).backward();
            run.step(32);
          }
          run.flush();
          EXPECT_EQ(run.steps(), 60 - (scaled ? scaler.skipped() : 0));
        }
        if (scaled) {
          EXPECT_GT(scaler.skipped(), 0) << "the first factor did not overflow";
          EXPECT_LT(scaler.skipped(), 40);
          const auto factors = world.gather({scaler.factor()});
          EXPECT_EQ(factors[0], factors[1]);
        }
        EXPECT_TRUE(same_on_all(world, flat_parameters(*net).cpu()));
        return small_loss(net, world, 999).item<double>() / before.item<double>();
      };
      EXPECT_LT(trained(true), 0.5) << strategy;
      EXPECT_GT(trained(false), 0.9) << strategy;
    });
}

TEST_F(LibraryOnGpu, TensorsOfAllWorkersAreReducedAndSent) {
  on_workers(3, [](World& world) {
    const auto brought = [](int rank, torch::ScalarType type) {
      torch::manual_seed(static_cast<std::uint64_t>(rank) + 5);
      return torch::randint(-40, 40, {300, 1000}, torch::kInt64).to(type);
    };
    for (const auto type : {torch::kFloat32, torch::kFloat64, torch::kHalf, torch::kInt64}) {
      const torch::Tensor sum =
          (brought(0, torch::kInt64) + brought(1, torch::kInt64) + brought(2, torch::kInt64))
              .to(type);
      torch::Tensor tensor = brought(world.rank(), type).to(kGpu);
      all_reduce(world, tensor);
      EXPECT_TRUE(tensor.is_cuda());
      EXPECT_TRUE(torch::equal(tensor.cpu(), sum)) << type;
      tensor = brought(world.rank(), type).to(kGpu);
      broadcast(world, tensor, 1);
      EXPECT_TRUE(torch::equal(tensor.cpu(), brought(1, type))) << type;
    }
    // A column of a matrix, right after the work that fills it was put on the stream.
    const torch::Tensor matrix = torch::zeros({2000, 3}, kGpu);
    matrix.select(1, 1).fill_(world.rank() + 1);
    all_reduce(world, matrix.select(1, 1), Reduce::max);
    EXPECT_EQ(matrix.sum().item<double>(), 6000);
  });
}

}  // namespace
}  // namespace skein::library_on_gpu_test

// skein::distribute with a module on a GPU, as a user's program calls it, in forked workers: this
// process never touches the GPU itself, since its children could not then.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>

#include "cuda/cuda.h"
#include "skein/torch.h"
#include "torch/distributed_impl.h"
#include "torch/on_workers.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

namespace F = torch::nn::functional;
using test::on_workers;

class TorchOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is no /dev/nvidiactl";
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);  // the same bits every time
  }
};
class EveryStrategyOnGpu : public TorchOnGpu, public testing::WithParamInterface<const char*> {};

struct NetImpl : torch::nn::Module {
  explicit NetImpl(std::int64_t width = 64)
      : first(register_module("first", torch::nn::Linear(16, width))),
        second(register_module("second", torch::nn::Linear(width, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        last(register_module("last", torch::nn::Linear(width, 4))) {}
  torch::Tensor forward(torch::Tensor x) {
    return last(norm(torch::relu(second(torch::relu(first(x))))));
  }
  torch::nn::Linear first, second;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

const torch::Device kFirstGpu(torch::kCUDA, 0);

Net make_net(std::int64_t width = 64) {
  torch::manual_seed(3);
  Net net(width);
  net->to(kFirstGpu);
  return net;
}

// The part of a worker in a step's batch; classes that can be learnt.
std::pair<torch::Tensor, torch::Tensor> batch_of(int step, int rank, std::int64_t count) {
  torch::manual_seed(static_cast<std::uint64_t>(1000 * step + rank));
  const torch::Tensor x = torch::randn({count, 16});
  return {x.to(kFirstGpu), x.narrow(1, 0, 4).argmax(1).to(kFirstGpu)};
}

double loss_of(Net& net) {
  const torch::NoGradGuard no_grad;
  const auto [x, target] = batch_of(99999, 77, 512);
  return F::cross_entropy(net->forward(x), target).item<double>();
}

void train(World& world, Net& net, Distributed& run, int steps) {
  for (int step = 0; step < steps; ++step) {
    const auto [x, target] = batch_of(step, world.rank(), 32);
    F::cross_entropy(net->forward(x), target).backward();
    run.step(32);
  }
}

void expect_close(const Net& one, const Net& other, double tolerance) {
  const auto named = other->named_parameters();
  for (const auto& each : one->named_parameters()) {
    const auto difference = (each.value() - named[each.key()]).abs().max().item<double>();
    if (!(difference <= tolerance))
      throw Error(each.key() + " differs by " + std::to_string(difference));
  }
}

TEST_P(EveryStrategyOnGpu, AloneIsPlainTraining) {
  on_workers(1, [name = GetParam()](World& world) {
    Net mine = make_net(), plain = make_net();
    Distributed run =
        distribute(world, *mine, sgd(0.1).momentum(0.9).weight_decay(1e-3), StrategySpec(name));
    torch::optim::SGD optimizer(plain->parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-3));
    for (int step = 0; step < 20; ++step) {
      const auto [x, target] = batch_of(step, 0, 32);
      F::cross_entropy(mine->forward(x), target).backward();
      run.step(32);
      optimizer.zero_grad();
      F::cross_entropy(plain->forward(x), target).backward();
      optimizer.step();
    }
    run.flush();
    if (std::string(name) != "abs") expect_close(mine, plain, 1e-4);  // whose gradients are late
  });
}

TEST_P(EveryStrategyOnGpu, FourWorkersOfOneGpuLearn) {
  on_workers(4, [name = GetParam()](World& world) {
    Net net = make_net();
    const double before = loss_of(net);
    Distributed run = distribute(world, *net, sgd(0.1).momentum(0.5), StrategySpec(name));
    train(world, net, run, 150);
    run.flush();
    const double after = loss_of(net);
    if (!(after < 0.5 * before))
      throw Error("loss " + std::to_string(before) + " became " + std::to_string(after));
    if (run.impl().strategy().equal_replicas()) run.impl().replicas().verify();
    const auto losses = world.gather({after});
    for (const auto& each : losses)
      if (std::abs(each[0] - after) > 1e-6) throw Error("models differ after flush()");
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, EveryStrategyOnGpu,
                         testing::Values("allreduce", "dear", "abs", "local", "lasgd", "gossip",
                                         "acid"),
                         [](const auto& info) { return std::string(info.param); });

// In the middle of training, every parameter on every worker.
TEST_F(TorchOnGpu, DearHasTheBitsOfAllreduce) {
  on_workers(4, [](World& world) {
    Net one = make_net(700), other = make_net(700);
    Distributed allreduce_run = distribute(world, *one, sgd(0.1).momentum(0.9), allreduce());
    Distributed dear_run =
        distribute(world, *other, sgd(0.1).momentum(0.9), dear().set("fusion", "256KB"));
    for (int round = 0; round < 4; ++round) {
      train(world, one, allreduce_run, 5);
      train(world, other, dear_run, 5);
      allreduce_run.flush();
      dear_run.flush();
      expect_close(one, other, 0);
    }
    dear_run.impl().replicas().verify();
  });
}

TEST_F(TorchOnGpu, TheUserMayClipAndUseTorchsOptimizers) {
  on_workers(2, [](World& world) {
    Net net = make_net();
    Distributed run = distribute(
        world, *net,
        [](std::vector<torch::Tensor> parameters) -> std::unique_ptr<torch::optim::Optimizer> {
          return std::make_unique<torch::optim::AdamW>(parameters,
                                                       torch::optim::AdamWOptions(1e-3));
        },
        1e-2, dear());
    const double before = loss_of(net);
    for (int step = 0; step < 60; ++step) {
      const auto [x, target] = batch_of(step, world.rank(), 32);
      F::cross_entropy(net->forward(x), target).backward();
      torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      run.step(32);
    }
    run.impl().replicas().verify();
    run.flush();
    if (!(loss_of(net) < 0.5 * before)) throw Error("nothing was learnt");
  });
}

// A loop on a stream of the user's own gives the model of one on the default stream.
TEST_F(TorchOnGpu, FollowsTheStreamThatTheUserComputesOn) {
  on_workers(2, [](World& world) {
    Net one = make_net(512), other = make_net(512);
    Distributed first = distribute(world, *one, sgd(0.1), dear());
    train(world, one, first, 30);
    first.flush();
    {
      const c10::cuda::CUDAStreamGuard scope(c10::cuda::getStreamFromPool());
      Distributed second = distribute(world, *other, sgd(0.1), dear());
      train(world, other, second, 30);
      second.flush();
      c10::cuda::getCurrentCUDAStream().synchronize();
    }
    expect_close(one, other, 0);
  });
}

// Two steps may be under way when step() returns, and the host has waited for none of them.
TEST_F(TorchOnGpu, TheHostIsAheadByTwoSteps) {
  on_workers(1, [](World& world) {
    Net net = make_net();
    Distributed run = distribute(world, *net, sgd(0.1), dear());
    const torch::Tensor large = torch::rand({8192, 8192}, kFirstGpu) * 1e-4;
    const TorchStream stream(Device(Device::gpu, 0));
    std::vector<std::pair<torch::Tensor, torch::Tensor>> batches;  // .to() waits for the device
    for (int i = 0; i < 8; ++i) batches.push_back(batch_of(i, 0, 32));
    const auto step = [&](std::size_t number) {
      const auto& [x, target] = batches[number];
      torch::Tensor slow = large;
      for (int i = 0; i < 10; ++i) slow = torch::mm(slow, large);
      (F::cross_entropy(net->forward(x), target) + slow.mean() * 1e-20).backward();
      run.step(32);
      return stream.record();
    };
    step(0);  // after which parameters are laid out anew
    stream.finish();
    std::vector<Mark> marks;
    for (std::size_t i = 1; i < batches.size(); ++i) {
      marks.push_back(step(i));
      if (reached(marks.back())) throw Error("step() waited for the device");
      if (i >= 2 && reached(marks[marks.size() - 2]))
        throw Error("the host is one step ahead only");
      if (i >= 4 && !reached(marks[marks.size() - 3]))
        throw Error("the host is more than two steps ahead");
    }
    run.flush();
  });
}

TEST_F(TorchOnGpu, SavesLoadsAndGivesTheModuleBack) {
  on_workers(2, [](World& world) {
    const std::string path = std::filesystem::temp_directory_path() /
                             ("skein-gpu-" + std::to_string(::getppid()) + ".safetensors");
    Net net = make_net(), again = make_net();
    {
      Distributed run = distribute(world, *net, adamw(0.01), acid());
      train(world, net, run, 10);
      run.save(path);
      Distributed other = distribute(world, *again, adamw(0.01), allreduce());
      other.load(path);
      train(world, again, other, 1);
      other.load(path);
      other.flush();
    }
    if (!net->first->weight.is_cuda()) throw Error("the module has left its device");
    expect_close(net, again, 0);
    world.barrier();
    if (world.rank() == 0) std::filesystem::remove(path);
  });
}

TEST_F(TorchOnGpu, RefusesWhatItCannotTrain) {
  on_workers(1, [](World& world) {
    Net half = make_net();
    half->last->to(torch::kCPU);
    try {
      distribute(world, *half, sgd(0.1));
      throw Error("parameters on two devices were accepted");
    } catch (const ConfigError& error) {
      if (std::string(error.what()).find("last.weight") == std::string::npos) throw;
    }
    Net narrow = make_net();
    narrow->to(torch::kBFloat16);
    try {
      distribute(world, *narrow, sgd(0.1));
      throw Error("bfloat16 was accepted");
    } catch (const ConfigError& error) {
      if (std::string(error.what()).find("BFloat16") == std::string::npos) throw;
    }
  });
}

}  // namespace
}  // namespace skein

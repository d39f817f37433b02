// Workers that did not call distribute() with the same arguments learn so at once.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "on_workers.h"
#include "skein/torch.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::agreement_test {
namespace {

using test::contains;
using test::message_of;
using test::Names;
using test::on_workers;

torch::nn::Sequential net_of(std::int64_t width) {
  return torch::nn::Sequential(torch::nn::Linear(4, width), torch::nn::Linear(width, 2));
}

// Rank 1 of three is the odd one; all throw the same, and the world is good for another attempt.
void expect_difference(const std::function<Distributed(World&, bool odd)>& start,
                       const Names& parts) {
  on_workers(3, [&](World& world) {
    const std::string said = message_of<ConfigError>([&] { start(world, world.rank() == 1); });
    EXPECT_TRUE(contains(said, parts));
    auto net = net_of(8);
    Distributed run = distribute(world, *net, sgd(0.1));
    net->forward(torch::ones({2, 4})).sum().backward();
    run.step(2);
    run.impl().replicas().verify();
  });
}

TEST(Agreement, RatesThatDiffer) {
  auto net = net_of(8);
  expect_difference(
      [&](World& world, bool odd) { return distribute(world, *net, sgd(odd ? 0.2 : 0.1)); },
      {"learning rate is 0.1 on ranks 0, 2 and 0.2 on rank 1"});
}

TEST(Agreement, OptimizersThatDiffer) {
  auto net = net_of(8);
  expect_difference(
      [&](World& world, bool odd) { return distribute(world, *net, odd ? adamw(0.1) : sgd(0.1)); },
      {"optimizer is sgd on ranks 0, 2 and adamw on rank 1"});
  using Optimizers = std::unique_ptr<torch::optim::Optimizer>;
  expect_difference(
      [&](World& world, bool odd) {
        return distribute(
            world, *net,
            [odd](std::vector<torch::Tensor> flat) -> Optimizers {
              return std::make_unique<torch::optim::SGD>(
                  flat, torch::optim::SGDOptions(0.1).momentum(odd ? 0.5 : 0.9));
            },
            0.1);
      },
      {"SGD with momentum 0.9", "on ranks 0, 2 and SGD with momentum 0.5", "on rank 1"});
}

TEST(Agreement, StrategiesThatDiffer) {
  auto net = net_of(8);
  expect_difference(
      [&](World& world, bool odd) {
        return distribute(world, *net, sgd(0.1), odd ? dear() : allreduce());
      },
      {"strategy is allreduce on ranks 0, 2 and dear on rank 1"});
  expect_difference(
      [&](World& world, bool odd) {
        return distribute(world, *net, sgd(0.1),
                          odd ? allreduce().set("wire", "bf16") : allreduce());
      },
      {"strategy option wire is bf16 on rank 1 and not there on ranks 0, 2"});
}

TEST(Agreement, WidthsThatDiffer) {
  expect_difference(
      [&](World& world, bool odd) { return distribute(world, *net_of(odd ? 16 : 8), sgd(0.1)); },
      {"parameter '0.weight' is Float [8, 4], trained on ranks 0, 2 and Float [16, 4], trained on "
       "rank 1"});
}

TEST(Agreement, ArchitecturesOfEqualSizeThatDiffer) {
  struct Named : torch::nn::Module {
    explicit Named(bool odd) {
      register_parameter(odd ? "up" : "down", torch::zeros({6}));
      register_buffer("seen", torch::zeros({2}, odd ? torch::kFloat64 : torch::kFloat32));
    }
  };
  expect_difference(
      [&](World& world, bool odd) {
        Named net(odd);
        return distribute(world, net, sgd(0.1));
      },
      {"parameter 'down' is Float [6], trained on ranks 0, 2 and not there on rank 1",
       "buffer 'seen' is Float [2] on ranks 0, 2 and Double [2] on rank 1"});
}

TEST(Agreement, FrozenOnOneWorkerOnly) {
  expect_difference(
      [&](World& world, bool odd) {
        auto net = net_of(8);
        if (odd) net[0]->parameters()[0].set_requires_grad(false);
        return distribute(world, *net, sgd(0.1));
      },
      {"parameter '0.weight' is Float [8, 4], trained on ranks 0, 2 and Float [8, 4], frozen on "
       "rank 1"});
}

TEST(Agreement, AWorkerThatFailsByItselfLeavesNobodyWaiting) {
  const auto start = [](World& world, bool odd) {
    auto net = net_of(8);
    if (odd) net->to(torch::kFloat64);
    return distribute(world, *net, sgd(0.1));
  };
  expect_difference(start, {"parameter '0.weight' is Strided Double"});
  on_workers(3, [&](World& world) {
    const auto said = message_of<ConfigError>([&] { start(world, world.rank() == 1); });
    if (world.rank() != 1) {
      EXPECT_TRUE(contains(said, {"distribute() failed on rank 1: "}));
    }
  });
}

TEST(Agreement, AModuleIsTrainedByOneDistributedAtATime) {
  on_workers(1, [](World& world) {
    auto net = net_of(8);
    struct Shares : torch::nn::Module {
      explicit Shares(const torch::Tensor& tensor) { register_parameter("part", tensor); }
    } shares(net[0]->parameters()[1]);
    {
      Distributed run = distribute(world, *net, sgd(0.1));
      EXPECT_TRUE(contains(message_of<ConfigError>([&] { distribute(world, *net, sgd(0.1)); }),
                           {"'0.weight'", "another Distributed"}));
      EXPECT_TRUE(contains(message_of<ConfigError>([&] { distribute(world, shares, sgd(0.1)); }),
                           {"'part'", "another Distributed"}));
      net->forward(torch::ones({2, 4})).sum().backward();
      run.step(2);
    }
    EXPECT_NO_THROW(distribute(world, *net, sgd(0.1)));
  });
}

// The world goes first, or moves elsewhere: training does not care.
TEST(Agreement, ADistributedKeepsItsWorld) {
  test::as_workers(2, [](World world) {
    auto net = net_of(8);
    std::optional<Distributed> run;
    run.emplace(distribute(world, *net, sgd(0.1), dear()));
    const auto step = [&] {
      net->forward(torch::ones({2, 4})).sum().backward();
      run->step(2);
    };
    step();
    World moved = std::move(world);
    step();
    { const World gone = std::move(moved); }
    step();
    run->impl().replicas().verify();
    run->impl().world().barrier();
    run.reset();
  });
}

TEST(Agreement, BuffersKeepTheirPrecision) {
  struct Counting : torch::nn::Module {
    Counting() {
      register_parameter("weight", torch::zeros({2}));
      exact = register_buffer("exact", torch::zeros({3}, torch::kFloat64));
      half = register_buffer("half", torch::ones({2}, torch::kFloat16));
    }
    torch::Tensor exact, half;
  };
  for (const int workers : {1, 2})
    on_workers(workers, [](World& world) {
      Counting net;
      Distributed run = distribute(world, net, sgd(0.1));
      const double third = 1.0 / 3, large = 123456789.123456789;
      net.exact.copy_(torch::tensor({third + world.rank(), large, -1e-300}, torch::kFloat64));
      for (const NamedTensor& each : run.impl().averages().buffers()) {
        if (each.name == "half") {
          EXPECT_TRUE(torch::equal(each.tensor, net.half));
          continue;
        }
        const double* got = each.tensor.data_ptr<double>();
        EXPECT_DOUBLE_EQ(got[0], third + (world.size() - 1) / 2.0);
        EXPECT_EQ(got[1], large);
        if (world.size() == 1) {
          EXPECT_EQ(got[2], -1e-300);
        }
      }
    });
}

}  // namespace
}  // namespace skein::agreement_test

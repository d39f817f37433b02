// What users do to gradients, on workers that send them while backward goes on.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "on_workers.h"
#include "skein/torch.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::user_gradients_test {
namespace {

using test::contains;
using test::flat_parameters;
using test::on_workers;
using test::same_on_all;

torch::nn::Sequential small_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::Tanh(), torch::nn::Linear(8, 8),
                               torch::nn::Tanh(), torch::nn::Linear(8, 2));
}

torch::Tensor loss_of(torch::nn::Sequential& net, const World& world, int step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 * step + world.rank()));
  return net->forward(torch::randn({4, 6})).square().mean();
}

// Trains for some steps with `touch` between backward() and step(), and returns the model.
using Touch = std::function<void(torch::nn::Sequential&, int step)>;
torch::Tensor trained(World& world, double rate, const StrategySpec& strategy,
                      const Touch& touch = nullptr) {
  auto net = small_net();
  Distributed run = distribute(world, *net, sgd(rate).momentum(0.9), strategy);
  for (int step = 0; step < 6; ++step) {
    loss_of(net, world, step).backward();
    if (touch) touch(net, step);
    run.step(4);
  }
  run.flush();
  return flat_parameters(*net);
}

StrategySpec in_small_buckets(const std::string& name) {
  return StrategySpec(name).set("fusion", "none");
}

class SendsInBackward : public testing::TestWithParam<const char*> {};

TEST_P(SendsInBackward, GradientsHalvedInPlaceAreHalfTheRate) {
  on_workers(3, [](World& world) {
    const auto halved = trained(world, 0.1, in_small_buckets(GetParam()), [](auto& net, int) {
      for (auto& each : net->parameters()) each.mutable_grad().mul_(0.5);
    });
    EXPECT_TRUE(same_on_all(world, halved));
    EXPECT_TRUE(torch::equal(halved, trained(world, 0.05, in_small_buckets(GetParam()))));
  });
}

TEST_P(SendsInBackward, ClippingEachWorkersOwnGradientWorks) {
  on_workers(3, [](World& world) {
    const Touch clip = [](auto& net, int) {
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01);
    };
    const auto seen = trained(world, 0.1, in_small_buckets(GetParam()), clip);
    EXPECT_TRUE(same_on_all(world, seen));
    const auto told =
        trained(world, 0.1, in_small_buckets(GetParam()).set("overlap", "false"), clip);
    EXPECT_TRUE(torch::equal(seen, told));
    EXPECT_FALSE(torch::equal(seen, trained(world, 0.1, in_small_buckets(GetParam()))));
  });
}

// One worker alone looks at its gradients: the others only wait for it.
TEST_P(SendsInBackward, OneWorkerMayLookFromTheStartOn) {
  on_workers(3, [](World& world) {
    const auto looked = trained(world, 0.1, in_small_buckets(GetParam()), [&](auto& net, int step) {
      if (world.rank() == 1) {
        EXPECT_GT(net[0]->parameters()[0].grad().norm().item().toFloat(), 0);
      }
      (void)step;
    });
    EXPECT_TRUE(torch::equal(looked, trained(world, 0.1, in_small_buckets(GetParam()))));
  });
}

// Rank 1 touches what has left in its fourth step: every worker ends with the same remedies.
void expect_remedies(const char* strategy, const Touch& touch) {
  test::as_workers(3, [&](World world) {
    std::string said;
    bool config = false;
    try {
      trained(world, 0.1, in_small_buckets(strategy), [&](auto& net, int step) {
        if (world.rank() == 1 && step == 3) touch(net, step);
      });
    } catch (const ConfigError& error) {
      config = true;
      said = error.what();
    } catch (const IoError& error) {
      said = error.what();
    }
    EXPECT_EQ(config, world.rank() == 1) << said;
    EXPECT_TRUE(contains(said, {"step 4", "'0.weight'", "before_update()", "OptimizerSpec::clip()",
                                "overlap=false"}));
  });
}

TEST_P(SendsInBackward, ChangingWhatHasLeftIsAnErrorOnAllWorkers) {
  expect_remedies(GetParam(),
                  [](auto& net, int) { net[0]->parameters()[0].mutable_grad().mul_(2); });
}
TEST_P(SendsInBackward, ReadingWhatHasLeftIsAnErrorOnAllWorkers) {
  expect_remedies(GetParam(), [](auto& net, int) { (void)net[0]->parameters()[0].grad().norm(); });
}
TEST_P(SendsInBackward, ReplacingWhatHasLeftIsAnErrorOnAllWorkers) {
  expect_remedies(GetParam(), [](auto& net, int) {
    auto weight = net[0]->parameters()[0];
    weight.mutable_grad() = torch::zeros_like(weight);
  });
}
TEST_P(SendsInBackward, ForgettingWhatHasLeftIsAnErrorOnAllWorkers) {
  expect_remedies(GetParam(),
                  [](auto& net, int) { net[0]->parameters()[0].mutable_grad() = torch::Tensor(); });
}

// Who catches the error and goes on gets it again, at once.
TEST_P(SendsInBackward, NoStepFollowsTheError) {
  test::as_workers(2, [](World world) {
    auto net = small_net();
    Distributed run = distribute(world, *net, sgd(0.1), in_small_buckets(GetParam()));
    const auto step = [&](int number) {
      loss_of(net, world, number).backward();
      if (world.rank() == 0 && number == 1) (void)net->parameters()[0].grad().norm();
      run.step(4);
    };
    step(0);
    if (world.rank() == 0) {
      EXPECT_THROW(step(1), ConfigError);
      EXPECT_THROW(run.step(4), ConfigError);
      EXPECT_THROW(run.flush(), ConfigError);
    } else {
      EXPECT_THROW((step(1), step(2)), IoError);
      EXPECT_THROW((step(3), step(4)), Error);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, SendsInBackward, testing::Values("allreduce", "dear"),
                         [](const auto& info) { return std::string(info.param); });

// Strategies whose workers come to the same bits whenever they are run.
struct Deterministic {
  const char* name;
  StrategySpec strategy;
};

class BeforeUpdate : public testing::TestWithParam<Deterministic> {
 protected:
  // Trains with a hook, or without; returns the model.
  static torch::Tensor trained(World& world, OptimizerSpec optimizer,
                               const std::function<void(AveragedGradients&)>& hook) {
    auto net = small_net();
    Distributed run = distribute(world, *net, optimizer, GetParam().strategy);
    run.before_update(hook);
    for (int step = 0; step < 6; ++step) {
      loss_of(net, world, step).backward();
      run.step(4);
    }
    run.flush();
    return flat_parameters(*net);
  }
};

TEST_P(BeforeUpdate, ClippingIsThatOfTheOptimizerBitForBit) {
  for (const int workers : {1, 3})
    on_workers(workers, [](World& world) {
      const auto spec = adamw(0.01).weight_decay(0.1);
      auto clipping = spec;
      clipping.clip(0.05);
      const auto want = trained(world, clipping, nullptr);
      EXPECT_TRUE(torch::equal(trained(world, spec, [](auto& g) { g.clip(0.05); }), want));
      EXPECT_TRUE(torch::equal(trained(world, spec,
                                       [](auto& g) {
                                         if (g.norm() > 0.05) g.scale(0.05 / (g.norm() + 1e-6));
                                       }),
                               want));
      EXPECT_FALSE(torch::equal(trained(world, spec, nullptr), want)) << "nothing was clipped";
    });
}

TEST_P(BeforeUpdate, HalvingIsHalfTheRateAndDoingNothingIsNothing) {
  on_workers(3, [](World& world) {
    const auto at = [](double rate) { return sgd(rate).momentum(0.9); };
    const auto plain = trained(world, at(0.05), nullptr);
    EXPECT_TRUE(torch::equal(trained(world, at(0.1), [](auto& g) { g.scale(0.5); }), plain));
    EXPECT_TRUE(torch::equal(trained(world, at(0.05), [](auto& g) { (void)g.norm(); }), plain));
  });
}

// It may use the world: here to learn that all were shown the same norm.
TEST_P(BeforeUpdate, RunsOnTheUsersThreadAndMayUseTheWorld) {
  on_workers(3, [](World& world) {
    const auto here = std::this_thread::get_id();
    int calls = 0;
    trained(world, sgd(0.1), [&](AveragedGradients& g) {
      ++calls;
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_GT(g.norm(), 0);
      if (std::string(GetParam().name) == "local") return;
      EXPECT_TRUE(same_on_all(world, torch::tensor({g.norm()})));
    });
    EXPECT_GE(calls, 5);
  });
}

TEST_P(BeforeUpdate, WorkersThatDecideDifferentlyAllLearnOfIt) {
  if (std::string(GetParam().name) == "local") return;  // each has a model of its own
  test::as_workers(3, [](World world) {
    int calls = 0;
    const auto train = [&] {
      trained(world, sgd(0.1), [&](AveragedGradients& g) {
        if (++calls == 3 && world.rank() == 1) g.skip();
      });
    };
    EXPECT_TRUE(contains(test::message_of<ConfigError>(train), {"before_update()", "decide"}));
  });
}

TEST_P(BeforeUpdate, WhatItThrowsComesOutOfTheStep) {
  on_workers(2, [](World& world) {
    EXPECT_THROW(trained(world, sgd(0.1), [](auto&) { throw std::logic_error("enough"); }),
                 std::logic_error);
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, BeforeUpdate,
                         testing::Values(Deterministic{"allreduce", in_small_buckets("allreduce")},
                                         Deterministic{"dear", in_small_buckets("dear")},
                                         Deterministic{"abs",
                                                       abs_sgd().set("warmup_rounds", "1000000")},
                                         Deterministic{"local", local().set("period", "2")}),
                         [](const auto& info) { return std::string(info.param.name); });

// A batch that is not a number on one worker: no worker takes the step, and what the optimizer
// remembers is what it would be without it.
class Skipping : public testing::TestWithParam<const char*> {};

TEST_P(Skipping, ABadBatchOfOneWorkerLeavesNoTraceOnAny) {
  on_workers(3, [](World& world) {
    const auto train = [&](bool bad) {
      auto net = small_net();
      auto strategy = StrategySpec(GetParam());
      if (strategy.name == "abs") strategy.set("warmup_rounds", "1000000");
      Distributed run = distribute(world, *net, adamw(0.01), strategy);
      run.before_update([](AveragedGradients& g) {
        if (!std::isfinite(g.norm())) g.skip();
      });
      for (int step = 0; step < 6; ++step) {
        if (step == 3 && !bad) continue;
        auto loss = loss_of(net, world, step);
        if (step == 3 && world.rank() == 1) loss = loss * NAN;
        loss.backward();
        run.step(4);
      }
      run.flush();
      EXPECT_EQ(run.steps(), 5);
      EXPECT_EQ(run.samples(), bad ? 72 : 60);
      run.impl().verify_replicas();
      return flat_parameters(*net);
    };
    const auto without = train(false);
    EXPECT_TRUE(torch::isfinite(without).all().item<bool>());
    EXPECT_TRUE(torch::equal(train(true), without));
  });
}

INSTANTIATE_TEST_SUITE_P(Lockstep, Skipping, testing::Values("allreduce", "dear", "abs"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace skein::user_gradients_test

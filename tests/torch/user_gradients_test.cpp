// What users do to gradients, on workers that send them while backward goes on.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <map>

#include "on_workers.h"
#include "skein/loss_scaler.h"
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

// Under dear the update of a step goes on after it: what is set then is for the next step.
TEST_P(SendsInBackward, AHookThatComesAndGoesLeavesTheLastStepsClipAlone) {
  on_workers(3, [](World& world) {
    const auto clipped = [&](bool with_hook) {
      auto net = small_net();
      Distributed run =
          distribute(world, *net, sgd(0.1).momentum(0.9).clip(0.01), in_small_buckets(GetParam()));
      for (int step = 0; step < 20; ++step) {
        loss_of(net, world, step).backward();
        run.step(4);
        if (with_hook && step % 2 == 0) run.before_update([](AveragedGradients&) {});
        if (with_hook && step % 2 == 1) run.before_update(nullptr);
      }
      run.flush();
      return flat_parameters(*net);
    };
    const auto plain = clipped(false);
    for (int round = 0; round < 5; ++round) EXPECT_TRUE(torch::equal(clipped(true), plain));
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

// Pieces are the whole gradient, however it is cut: numbered once each they add up, and what is
// done to them is what a user would do to whole gradients.
TEST_P(BeforeUpdate, EachPieceIsShownOnceAndCountsAsChanged) {
  on_workers(3, [](World& world) {
    const auto spec = sgd(0.1).momentum(0.9);
    const auto doubled = trained(world, spec, [](auto& g) { g.scale(2); });
    const auto piecewise = trained(world, spec, [&](AveragedGradients& g) {
      const double before = g.norm();
      double squares = 0;
      std::map<std::string, std::int64_t> shown;
      g.each([&](const GradientPiece& piece) {
        EXPECT_LE(piece.offset + piece.values.numel(), piece.parameter.numel());
        squares += piece.values.to(torch::kFloat64).square().sum().item<double>();
        shown[piece.name] += piece.values.numel();
        piece.values.mul_(2);
      });
      EXPECT_NEAR(g.norm(), 2 * before, 1e-6 * before);  // each element is rounded once more
      std::int64_t count = 0;
      for (const auto& each : shown) count += each.second;
      if (std::string(GetParam().name) == "dear") {
        count = world.sum_integers({count}).front();
        squares = world.sum({squares}).front();
      }
      EXPECT_EQ(count, 6 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2);
      EXPECT_NEAR(std::sqrt(squares), before, 1e-6 * before);
    });
    EXPECT_TRUE(torch::equal(doubled, piecewise));
  });
}

// The optimizer's clipping sees what the hook left.
TEST_P(BeforeUpdate, ClippingFollowsWhatEachChanged) {
  on_workers(2, [](World& world) {
    const auto clamp = [](const GradientPiece& piece) { piece.values.clamp_(-0.01, 0.01); };
    auto clipping = sgd(0.1);
    clipping.clip(0.02);
    const auto want = trained(world, clipping, [&](auto& g) { g.each(clamp); });
    EXPECT_TRUE(torch::equal(want, trained(world, sgd(0.1), [&](auto& g) {
                               g.each(clamp);
                               g.clip(0.02);
                             })));
    EXPECT_FALSE(torch::equal(want, trained(world, sgd(0.1), [&](auto& g) { g.each(clamp); })));
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
      run.impl().replicas().verify();
      return flat_parameters(*net);
    };
    const auto without = train(false);
    EXPECT_TRUE(torch::isfinite(without).all().item<bool>());
    EXPECT_TRUE(torch::equal(train(true), without));
  });
}

// Factors that are powers of two change no bit; a step that overflows on one worker is taken by
// none, and all have the same factor after it.
TEST_P(Skipping, ScaledLossesGiveTheBitsOfPlainOnes) {
  if (std::string(GetParam()) == "abs") return;
  on_workers(3, [](World& world) {
    const auto train = [&](bool scaled) {
      auto net = small_net();
      Distributed run = distribute(world, *net, adamw(0.01).clip(0.05), StrategySpec(GetParam()));
      LossScaler scaler({.initial = 1024, .growth_interval = 2});
      if (scaled) run.before_update([&](AveragedGradients& g) { scaler.unscale(g); });
      for (int step = 0; step < 7; ++step) {
        if (step == 3 && !scaled) continue;
        auto loss = loss_of(net, world, step);
        if (step == 3 && world.rank() == 1) loss = loss * INFINITY;
        (scaled ? scaler.scale(loss) : loss).backward();
        run.step(4);
        EXPECT_TRUE(same_on_all(world, torch::tensor({scaler.factor()})));
      }
      run.flush();
      EXPECT_EQ(run.steps(), 6);
      EXPECT_EQ(scaler.skipped(), scaled ? 1 : 0);
      // Twice as large after two, half after the overflow, twice again after two more.
      EXPECT_EQ(scaler.factor(), scaled ? 2048 : 1024);
      return flat_parameters(*net);
    };
    EXPECT_TRUE(torch::equal(train(true), train(false)));
  });
}

INSTANTIATE_TEST_SUITE_P(Lockstep, Skipping, testing::Values("allreduce", "dear", "abs"),
                         [](const auto& info) { return std::string(info.param); });

// The majority of the workers' signs in place of the mean: signs before the sum, by torch's own
// hooks, and the sign of the mean after it.
TEST(CustomReduction, MajorityOfSigns) {
  on_workers(3, [](World& world) {
    const auto train = [&](const char* strategy) {
      auto net = small_net();
      for (auto& each : net->parameters())
        each.register_hook([](torch::Tensor gradient) { return gradient.sign(); });
      Distributed run = distribute(world, *net, sgd(0.125), in_small_buckets(strategy));
      run.before_update([](AveragedGradients& g) {
        g.each([](const GradientPiece& piece) { piece.values.sign_(); });
      });
      const auto before = flat_parameters(*net);
      loss_of(net, world, 0).backward();
      run.step(4);
      loss_of(net, world, 1).backward();
      run.step(4);
      run.flush();
      return std::make_pair(before, flat_parameters(*net));
    };
    const auto [before, after] = train("allreduce");
    // Two steps of an eighth each, up or down: three workers never tie.
    const auto moved = (after - before).abs();
    EXPECT_TRUE(((moved - 0.25).abs().lt(1e-6) | moved.lt(1e-6)).all().item<bool>());
    EXPECT_GT(moved.sum().item<float>(), 1);
    EXPECT_TRUE(torch::equal(train("dear").second, after));
  });
}

AveragedGradients with_norm(double norm) { return AveragedGradients(norm); }

TEST(LossScaler, GrowsBacksOffAndStopsAtItsLimits) {
  LossScaler scaler({.initial = 4, .growth_interval = 2, .least = 1, .most = 8});
  const auto see = [&](double norm) {
    AveragedGradients g = with_norm(norm);
    const double factor = scaler.factor();
    EXPECT_EQ(scaler.unscale(g), std::isfinite(norm));
    EXPECT_EQ(g.skipped(), !std::isfinite(norm));
    if (!g.skipped()) {
      EXPECT_EQ(g.norm(), norm / factor);
    }
    return scaler.factor();
  };
  EXPECT_EQ(see(1), 4);
  EXPECT_EQ(see(1), 8);
  EXPECT_EQ(see(1), 8);
  EXPECT_EQ(see(1), 8) << "the most";
  EXPECT_EQ(see(INFINITY), 4);
  EXPECT_EQ(see(NAN), 2);
  EXPECT_EQ(see(1), 2);
  EXPECT_EQ(see(INFINITY), 1);
  EXPECT_EQ(see(INFINITY), 1) << "the least";
  EXPECT_EQ(scaler.skipped(), 4);
  const LossScaler::State state = scaler.state();
  LossScaler other({.initial = 8, .least = 1, .most = 8});
  other.set_state(state);
  EXPECT_EQ(other.factor(), 1);
  EXPECT_EQ(other.skipped(), 4);
  EXPECT_THROW(other.set_state({.factor = 16}), ConfigError);
  EXPECT_THROW(for (int i = 0; i < 20; ++i) see(NAN), Error);
}

TEST(LossScaler, RefusesWhatCannotBe) {
  EXPECT_THROW(LossScaler({.initial = 0}), ConfigError);
  EXPECT_THROW(LossScaler({.growth = 0.5}), ConfigError);
  EXPECT_THROW(LossScaler({.growth_interval = 0}), ConfigError);
  EXPECT_THROW(LossScaler({.backoff = 1}), ConfigError);
  AveragedGradients of_several_steps(1, false);
  LossScaler scaler;
  EXPECT_TRUE(contains(test::message_of<ConfigError>([&] { scaler.unscale(of_several_steps); }),
                       {"abs", "factor()"}));
}

}  // namespace
}  // namespace skein::user_gradients_test

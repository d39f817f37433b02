// Groups, rates that change and frozen parameters: against plain torch, and the same on any
// workers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "on_workers.h"
#include "skein/torch.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::parameter_groups_test {
namespace {

using namespace torch::optim;
using test::contains;
using test::EveryLayer;
using test::expect_same_bits;
using test::flat_parameters;
using test::fresh_net;
using test::message_of;
using test::on_workers;
using test::same_on_all;

void train(EveryLayer& net, Distributed& run, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    test::loss_at(net, step).backward();
    run.step(4);
  }
}

// The head learns ten times as fast, biases and norms do not decay, words are frozen.
OptimizerSpec grouped(OptimizerSpec spec, double rate) {
  return spec.no_decay_1d()
      .group(group("head.*").learning_rate(rate * 10).weight_decay(0.25))
      .group(group([](const ParameterInfo& each) { return each.shape.size() == 4; }).factor(0.5))
      .group(group("words.*").frozen());
}

template <typename Options>
std::vector<OptimizerParamGroup> torch_groups(EveryLayer& net, const Options& options) {
  std::map<std::string, std::vector<torch::Tensor>> members;
  for (const auto& each : net->named_parameters()) {
    const bool head = each.key().starts_with("head");
    if (each.key().starts_with("words")) continue;
    members[head                      ? "head"
            : each.value().dim() == 4 ? "image"
            : each.value().dim() == 1 ? "1d"
                                      : ""]
        .push_back(each.value());
  }
  std::vector<OptimizerParamGroup> groups;
  for (const auto& [name, tensors] : members) {
    Options own = options;
    if (name == "head") own.lr(options.lr() * 10).weight_decay(0.25);
    if (name == "image") own.lr(options.lr() * 0.5);
    if (name == "1d") own.weight_decay(0);
    groups.emplace_back(tensors, std::make_unique<Options>(own));
  }
  return groups;
}

// Ten steps, with a torch scheduler on both sides, and a change of all rates in the middle.
template <typename Torch, typename Options>
void compare_with_torch(const Options& options) {
  on_workers(1, [&](World& world) {
    EveryLayer want = fresh_net(), net = fresh_net();
    want->named_parameters()["words.weight"].set_requires_grad(false);
    Torch optimizer(torch_groups(want, options), options);
    for (auto& each : optimizer.param_groups())  // torch 2 gives unset looking ones the defaults
      if (each.params().front().dim() == 1 && each.params().size() > 2)
        static_cast<Options&>(each.options()).weight_decay(0);
    Distributed run =
        distribute(world, *net, grouped(torch_optimizer<Torch>(options), options.lr()));
    StepLR scheduler(optimizer, 3, 0.5), same(run.optimizer(), 3, 0.5);
    for (std::int64_t step = 0; step < 10; ++step) {
      if (step == 5) {
        for (auto& each : optimizer.param_groups())
          each.options().set_lr(each.options().get_lr() * 0.25);
        run.set_learning_rate(run.learning_rate() * 0.25);
      }
      optimizer.zero_grad();
      test::loss_at(want, step).backward();
      optimizer.step();
      scheduler.step();
      test::loss_at(net, step).backward();
      run.step(4);
      same.step();
      expect_same_bits(want, net, step);
    }
    EXPECT_EQ(run.optimizer().param_groups().size(), 4U) << "words have the rest's settings";
  });
}

TEST(ParameterGroups, SgdHasTheBitsOfTorchsGroups) {
  compare_with_torch<SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true));
}
TEST(ParameterGroups, AdamHasTheBitsOfTorchsGroups) {
  compare_with_torch<Adam>(AdamOptions(0.01).weight_decay(0.01).amsgrad(true));
}
TEST(ParameterGroups, AdamwHasTheBitsOfTorchsGroups) {
  compare_with_torch<AdamW>(AdamWOptions(0.01).weight_decay(0.1));
}
TEST(ParameterGroups, RmspropHasTheBitsOfTorchsGroups) {
  compare_with_torch<RMSprop>(RMSpropOptions(0.01).momentum(0.5).centered(true).weight_decay(0.01));
}

// Skein's own round in other places than torch.
TEST(ParameterGroups, OwnOptimizersAreNearTorchs) {
  on_workers(1, [&](World& world) {
    EveryLayer want = fresh_net(), net = fresh_net();
    want->named_parameters()["words.weight"].set_requires_grad(false);
    const auto options = SGDOptions(0.05).momentum(0.9).weight_decay(0.01);
    SGD optimizer(torch_groups(want, options), options);
    for (auto& each : optimizer.param_groups())
      if (each.params().front().dim() == 1 && each.params().size() > 2)
        static_cast<SGDOptions&>(each.options()).weight_decay(0);
    Distributed run =
        distribute(world, *net, grouped(sgd(0.05).momentum(0.9).weight_decay(0.01), 0.05));
    for (std::int64_t step = 0; step < 10; ++step) {
      optimizer.zero_grad();
      test::loss_at(want, step).backward();
      optimizer.step();
      test::loss_at(net, step).backward();
      run.step(4);
    }
    EXPECT_TRUE(torch::allclose(flat_parameters(*want), flat_parameters(*net), 1e-4, 1e-6));
    EXPECT_FALSE(
        torch::allclose(flat_parameters(*want), flat_parameters(*fresh_net()), 1e-2, 1e-3));
  });
}

// A group may have the only momentum there is, and the rest the only one.
TEST(ParameterGroups, MomentumOfAGroupIsThatOfARunWithIt) {
  on_workers(1, [&](World& world) {
    const auto trained = [&](OptimizerSpec spec) {
      EveryLayer net = fresh_net();
      Distributed run = distribute(world, *net, spec);
      train(net, run, 0, 6);
      return flat_parameters(*net);
    };
    EXPECT_TRUE(torch::equal(trained(sgd(0.05).group(group("*").momentum(0.9))),
                             trained(sgd(0.05).momentum(0.9))));
    EXPECT_TRUE(torch::equal(trained(sgd(0.05).momentum(0.9).group(group("*").momentum(0))),
                             trained(sgd(0.05))));
    EXPECT_TRUE(torch::equal(trained(sgd(0.05).group(group("*").factor(2))), trained(sgd(0.1))));
  });
}

struct Recipe {
  const char* name;
  OptimizerSpec optimizer;
};

std::vector<Recipe> recipes() {
  return {{"sgd", sgd(0.05).momentum(0.9).weight_decay(0.01).nesterov()},
          {"adamw", adamw(0.01).weight_decay(0.1)},
          {"torch_adam", torch_optimizer<Adam>(AdamOptions(0.01).weight_decay(0.01))}};
}

// All that there is at once: groups, clipping, a schedule, a hook that changes elements, rates that
// change, a torch scheduler, parameters that are frozen and trained again.
torch::Tensor all_at_once(World& world, const OptimizerSpec& optimizer, const char* strategy) {
  EveryLayer net = fresh_net();
  OptimizerSpec spec = grouped(optimizer, optimizer.learning_rate);
  spec.clip(0.5).schedule("cosine:warmup=12", 12 * 12);
  Distributed run = distribute(world, *net, spec, StrategySpec(strategy).set("fusion", "none"));
  StepLR scheduler(run.optimizer(), 4, 0.5);
  run.before_update([](AveragedGradients& g) {
    g.scale(3);
    g.each([](const GradientPiece& piece) { piece.values.clamp_(-0.02, 0.02); });
    g.clip(0.8);
  });
  for (std::int64_t step = 0; step < 12; ++step) {
    if (step == 4) run.set_learning_rate(run.learning_rate() * 2 + 0.01);
    if (step == 6) run.freeze(named("lstm.*"));
    if (step == 8) run.unfreeze(of({net->words->weight, net->lstm->parameters().front()}));
    test::loss_at(net, 3 * step + world.rank()).backward();
    run.step(4);
    scheduler.step();
  }
  run.flush();
  run.impl().replicas().verify();
  return flat_parameters(*net);
}

class OnWorkers : public testing::TestWithParam<Recipe> {};

TEST_P(OnWorkers, DearHasTheBitsOfAllReduceWithEverythingOn) {
  on_workers(3, [](World& world) {
    const auto want = all_at_once(world, GetParam().optimizer, "allreduce");
    EXPECT_TRUE(same_on_all(world, want));
    EXPECT_TRUE(torch::equal(want, all_at_once(world, GetParam().optimizer, "dear")));
    EXPECT_TRUE(torch::isfinite(want).all().item<bool>());
  });
}

INSTANTIATE_TEST_SUITE_P(Recipes, OnWorkers, testing::ValuesIn(recipes()),
                         [](const auto& info) { return std::string(info.param.name); });

class Freezing : public testing::TestWithParam<const char*> {
 protected:
  static StrategySpec strategy() {
    auto spec = StrategySpec(GetParam());
    if (spec.name == "abs") spec.set("warmup_rounds", "1000000");
    if (spec.name == "local") spec.set("period", "1");
    return spec;
  }
};

// Momentum would move it, and so would weight decay.
TEST_P(Freezing, WhatIsFrozenStaysAndGoesOnWhereItWas) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net();
    Distributed run =
        distribute(world, *net, sgd(0.05).momentum(0.9).weight_decay(0.1), strategy());
    const auto advance = [&](std::int64_t from) {
      train(net, run, from, from + 3);
      run.flush();
    };
    advance(0);
    run.freeze(of(*net->lstm));
    EXPECT_FALSE(net->lstm->parameters().front().requires_grad());
    const auto lstm = flat_parameters(*net->lstm), head = flat_parameters(*net->head);
    advance(3);
    EXPECT_TRUE(torch::equal(flat_parameters(*net->lstm), lstm));
    EXPECT_FALSE(torch::equal(flat_parameters(*net->head), head));
    run.unfreeze(of(*net->lstm));
    advance(6);
    EXPECT_FALSE(torch::equal(flat_parameters(*net->lstm), lstm));
  });
}

// Torch leaves alone what has no gradient.
// Parameters are frozen from the start and for a while in between, and some updates are skipped, as
// a loss scaler does: torch counts neither in the number of a parameter's steps.
template <typename TorchOptimizer, typename Options>
void follow_torch_with_frozen(
    World& world, const Options& options, const OptimizerSpec& recipe,
    const std::function<void(EveryLayer&, EveryLayer&, std::int64_t)>& compare) {
  EveryLayer want = fresh_net(), net = fresh_net();
  TorchOptimizer optimizer(want->parameters(), options);
  Distributed run = distribute(world, *net, recipe);
  std::int64_t step = 0;
  run.before_update([&](AveragedGradients& g) {
    if (step % 7 == 2) g.skip();
  });
  run.freeze(named("conv.*"));
  for (; step < 20; ++step) {
    if (step == 3) run.freeze(named("lstm.*"));
    if (step == 9) run.unfreeze(named("lstm.*"));
    if (step == 12) run.unfreeze(named("conv.*"));
    optimizer.zero_grad();
    test::loss_at(want, step).backward();
    if (step >= 3 && step < 9)
      for (auto& each : want->lstm->parameters()) each.mutable_grad() = torch::Tensor();
    if (step < 12)
      for (auto& each : want->conv->parameters()) each.mutable_grad() = torch::Tensor();
    if (step % 7 != 2) optimizer.step();
    test::loss_at(net, step).backward();
    run.step(4);
    compare(want, net, step);
  }
}

TEST(FreezingAlone, HasTheBitsOfTorchWithoutGradients) {
  on_workers(1, [&](World& world) {
    const auto follow = [&]<typename Of>(auto options) {
      follow_torch_with_frozen<Of>(
          world, options, torch_optimizer<Of>(options),
          [](auto& want, auto& net, std::int64_t step) { expect_same_bits(want, net, step); });
    };
    follow.template operator()<SGD>(SGDOptions(0.05).momentum(0.9).weight_decay(0.1));
    follow.template operator()<SGD>(SGDOptions(0.05).momentum(0.9).dampening(0.3));
    follow.template operator()<Adam>(AdamOptions(0.01).amsgrad(true));
    follow.template operator()<AdamW>(AdamWOptions(0.01).weight_decay(0.1));
    follow.template operator()<Adagrad>(AdagradOptions(0.05).lr_decay(0.1));
  });
}

// Skein's own round in other places than torch. Each step begins at torch's model, so that both see
// the same gradients.
TEST(FreezingAlone, OwnAdamwIsNearTorchsWithoutGradients) {
  on_workers(1, [&](World& world) {
    follow_torch_with_frozen<AdamW>(
        world, AdamWOptions(0.01).weight_decay(0.1), adamw(0.01).weight_decay(0.1),
        [](auto& want, auto& net, std::int64_t step) {
          EXPECT_TRUE(torch::allclose(flat_parameters(*want), flat_parameters(*net), 1e-4, 2e-5))
              << step;
          const torch::NoGradGuard no_grad;
          for (const auto& each : net->named_parameters())
            each.value().copy_(want->named_parameters()[each.key()]);
        });
  });
}

// Whatever the run's number of updates is, a parameter's first one moves it by the rate.
TEST_P(Freezing, AdamwMovesAParameterByTheRateAfterUnfreeze) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net();
    Distributed run = distribute(world, *net, adamw(0.01).weight_decay(0), strategy());
    run.freeze(named("conv.*"));
    train(net, run, 0, 40);
    run.flush();
    run.unfreeze(named("conv.*"));
    for (std::int64_t step = 40; step < 44; ++step) {
      const auto before = flat_parameters(*net->conv);
      train(net, run, step, step + 1);
      run.flush();
      const auto moved = (flat_parameters(*net->conv) - before).abs().max().item<double>();
      EXPECT_LT(moved, 0.012) << step;
      EXPECT_GT(moved, 0.002) << step;
    }
  });
}

// Each worker counts its own updates where each makes its own.
TEST_P(Freezing, CountsOfUpdatesComeBack) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("skein-counts-test-{}", ::getpid());
  on_workers(2, [&](World& world) {
    EveryLayer net = fresh_net(), other = fresh_net(), old = fresh_net();
    const auto recipe = adamw(0.01).group(group("words.*").frozen());
    Distributed run = distribute(world, *net, recipe, strategy());
    train(net, run, 0, 4 + world.rank());
    run.flush();
    run.freeze(named("conv.*"));
    train(net, run, 0, 3 + 2 * world.rank());
    run.flush();
    run.unfreeze(named("conv.*"));
    train(net, run, 0, 2);
    run.save_checkpoint(folder, {}, {.wait = true});
    const auto missed = run.impl().settings().missed();
    EXPECT_EQ(std::ranges::count(missed, 0), std::ssize(missed) - 3)
        << "words and conv missed some";
    EXPECT_EQ(*std::ranges::max_element(missed), run.steps()) << "words missed all";
    Distributed resumed = distribute(world, *other, recipe, strategy());
    ASSERT_TRUE(resumed.resume(folder));
    EXPECT_EQ(resumed.steps(), run.steps());
    EXPECT_EQ(resumed.impl().settings().missed(), missed);

    // As version 0.1 has saved it: without checksums, too.
    world.barrier("all have resumed");
    if (world.rank() == 0)
      for (const auto& each : std::filesystem::recursive_directory_iterator(folder)) {
        if (each.path().filename() == "checksums.json") std::filesystem::remove(each.path());
        if (each.path().filename() != "state.json") continue;
        std::ifstream file(each.path());
        std::stringstream text;
        text << file.rdbuf();
        std::string state = text.str();
        const std::string key = "\"updates missed while frozen\"";
        const auto at = state.find(key);
        ASSERT_NE(at, std::string::npos);
        std::ofstream(each.path()) << state.replace(at, key.size(), "\"unknown\"");
      }
    world.barrier("it is an old one");
    Distributed from_old = distribute(world, *old, recipe, strategy());
    ASSERT_TRUE(from_old.resume(folder));
    const auto old_missed = from_old.impl().settings().missed();
    EXPECT_EQ(*std::ranges::max_element(old_missed), run.steps());
    train(old, from_old, 0, 2);
    from_old.flush();
    EXPECT_TRUE(torch::isfinite(flat_parameters(*old)).all().item<bool>());
  });
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Freezing,
                         testing::Values("allreduce", "dear", "abs", "local", "gossip"),
                         [](const auto& info) { return std::string(info.param); });

// As it is saved, and under another strategy with the same updates.
TEST(Freezing, GoesOnBitForBitAfterAResume) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("skein-freezing-test-{}", ::getpid());
  on_workers(2, [&](World& world) {
    const auto recipe = adamw(0.01).group(group("words.*").frozen());
    const auto finish = [](EveryLayer& net, Distributed& run) {
      run.unfreeze(named("conv.*"));
      train(net, run, 7, 9);
      run.unfreeze(named("words.*"));
      train(net, run, 9, 12);
      run.flush();
    };
    EveryLayer net = fresh_net();
    Distributed run = distribute(world, *net, recipe, dear().set("fusion", "none"));
    train(net, run, 0, 4);
    run.freeze(named("conv.*"));
    train(net, run, 4, 7);
    run.save_checkpoint(folder, {}, {.wait = true});
    finish(net, run);
    for (const char* strategy : {"dear", "allreduce"}) {
      EveryLayer other = fresh_net();
      Distributed resumed =
          distribute(world, *other, recipe, StrategySpec(strategy).set("fusion", "none"));
      ASSERT_TRUE(resumed.resume(folder));
      finish(other, resumed);
      expect_same_bits(net, other, 12);
    }
  });
  on_workers(1, [&](World& world) {
    EveryLayer net = fresh_net();
    Distributed run = distribute(world, *net, adamw(0.01).group(group("words.*").frozen()));
    ASSERT_TRUE(run.resume(folder));
    const auto missed = run.impl().settings().missed();
    EXPECT_EQ(std::ranges::count(missed, 7), 1) << "words";
    EXPECT_EQ(std::ranges::count(missed, 3), 2) << "conv";
  });
  std::filesystem::remove_all(folder);
}

TEST(Rates, SetInTheMiddleAreThoseOfARunThatHadThem) {
  on_workers(2, [](World& world) {
    const auto trained = [&](const char* strategy, bool set) {
      EveryLayer net = fresh_net();
      OptimizerSpec spec = adamw(set ? 0.02 : 0.01);
      if (!set) spec.schedule("step:every=24,factor=2");
      Distributed run = distribute(world, *net, spec, StrategySpec(strategy));
      if (set) run.set_learning_rate(0.01);
      for (std::int64_t step = 0; step < 6; ++step) {
        if (set && step == 3) run.set_learning_rate(0.02);
        EXPECT_EQ(run.learning_rate(), step < 3 ? 0.01 : 0.02);
        test::loss_at(net, step).backward();
        run.step(4);
      }
      run.flush();
      return flat_parameters(*net);
    };
    const auto want = trained("allreduce", false);
    EXPECT_TRUE(torch::equal(trained("allreduce", true), want));
    EXPECT_TRUE(torch::equal(trained("dear", true), want));
  });
}

// One worker alone sets another rate, or freezes something: all learn of it.
TEST(Rates, ThatDifferAreAnErrorOnAllWorkers) {
  const std::vector<std::function<void(Distributed&)>> changes{
      [](Distributed& run) { run.set_learning_rate(0.02); },
      [](Distributed& run) { run.optimizer().param_groups()[0].options().set_lr(0.02); },
      [](Distributed& run) { run.freeze(named("head.bias")); }};
  for (const char* strategy : {"allreduce", "dear", "abs"})
    for (const auto& change : changes)
      test::as_workers(2, [&](World world) {
        EveryLayer net = fresh_net();
        auto spec = StrategySpec(strategy);
        if (spec.name == "abs") spec.set("warmup_rounds", "1000000");
        Distributed run = distribute(world, *net, sgd(0.01), spec);
        const auto said = message_of<ConfigError>([&] {
          train(net, run, 0, 2);
          if (world.rank() == 1) change(run);
          train(net, run, 2, 8);
        });
        EXPECT_TRUE(contains(said, {"set_learning_rate()", "freeze()", "no longer equal"}));
      });
}

TEST(ParameterGroups, ThatDifferAreAnErrorOnAllWorkers) {
  on_workers(2, [](World& world) {
    EveryLayer net = fresh_net();
    const auto said = message_of<ConfigError>(
        [&] { distribute(world, *net, sgd(0.1).group(group("head.*").factor(world.rank() + 2))); });
    EXPECT_TRUE(contains(said, {"parameter group 'head.*'", "times 2", "times 3", "head.weight"}))
        << said;
  });
}

TEST(ParameterGroups, SayWhatIsWrongWithThem) {
  on_workers(1, [&](World& world) {
    EveryLayer net = fresh_net();
    const auto said = [&](const OptimizerSpec& spec) {
      return message_of<ConfigError>([&] { distribute(world, *net, spec); });
    };
    EXPECT_TRUE(contains(said(sgd(0.1).group(group("haed.*"))), {"'haed.*'", "head.weight"}));
    EXPECT_TRUE(contains(said(sgd(0.1).group(group([](const auto&) { return false; }))),
                         {"number 1", "no trained parameter"}));
    EXPECT_TRUE(contains(said(sgd(0.1).group(group("*").learning_rate(-1))),
                         {"learning rate of parameter group '*'", "-1"}));
    EXPECT_TRUE(contains(said(sgd(0).group(group("head.*").learning_rate(1))), {"above 0"}));
    EXPECT_TRUE(contains(said(adamw(0.1).group(group("*").momentum(0.5))), {"momentum", "AdamW"}));
    const auto torch_sgd = torch_optimizer<SGD>(SGDOptions(0.1));
    EXPECT_TRUE(contains(said(OptimizerSpec(torch_sgd).weight_decay(0.1)),
                         {"weight_decay()", "own options"}));
    EXPECT_TRUE(contains(said(OptimizerSpec(torch_sgd).group(group("*").momentum(0.5))),
                         {"momentum", "own options"}));
    EXPECT_TRUE(net->words->weight.requires_grad()) << "a run that failed froze nothing";

    Distributed run = distribute(world, *net, sgd(0.1));
    EXPECT_THROW(run.set_learning_rate(-1), ConfigError);
    EXPECT_TRUE(contains(message_of<ConfigError>([&] { run.freeze(named("haed.*")); }),
                         {"freeze()", "head.weight"}));
    EXPECT_TRUE(
        contains(message_of<ConfigError>([&] { run.optimizer().step(); }), {"step(samples)"}));
    test::loss_at(net, 1).backward();
    EXPECT_TRUE(contains(message_of<ConfigError>([&] { run.freeze(named("head.*")); }),
                         {"between backward() and step()"}));
  });
}

// What a checkpoint keeps of it.
TEST(ParameterGroups, SettingsComeBack) {
  on_workers(1, [&](World& world) {
    EveryLayer net = fresh_net(), other = fresh_net();
    const auto spec = sgd(0.1).group(group("head.*").factor(2)).group(group("words.*").frozen());
    Distributed run = distribute(world, *net, spec);
    run.set_learning_rate(0.3);
    run.optimizer().param_groups()[1].options().set_lr(0.9);
    run.unfreeze(named("words.*"));
    run.freeze(named("conv.*"));
    Distributed resumed = distribute(world, *other, spec);
    resumed.impl().settings().restore(run.impl().settings().text(), 0);
    EXPECT_EQ(resumed.impl().settings().text(), run.impl().settings().text());
    EXPECT_EQ(resumed.learning_rate(), 0.3);
    EXPECT_EQ(resumed.optimizer().param_groups()[1].options().get_lr(), 0.9);
    EXPECT_TRUE(other->words->weight.requires_grad());
    EXPECT_FALSE(other->conv->weight.requires_grad());
    EXPECT_THROW(resumed.impl().settings().restore({{"learning rate", "fast"}}, 0), ConfigError);
  });
}

// Saved in the middle, after rates and frozen parameters changed, and resumed by another run.
TEST(ParameterGroups, AResumedRunHasTheBitsOfOneThatWasNotStopped) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("skein-groups-test-{}", ::getpid());
  on_workers(2, [&](World& world) {
    const auto strategy = dear().set("fusion", "none");
    const auto recipe = grouped(torch_optimizer<Adam>(AdamOptions(0.01)), 0.01);
    EveryLayer net = fresh_net(), other = fresh_net();
    Distributed run = distribute(world, *net, recipe, strategy);
    train(net, run, 0, 4);
    run.set_learning_rate(0.013);
    run.optimizer().param_groups()[1].options().set_lr(0.007);
    run.freeze(named("conv.*"));
    run.unfreeze(named("words.*"));
    train(net, run, 4, 7);
    run.save_checkpoint(folder, {}, {.wait = true});
    train(net, run, 7, 11);
    run.flush();

    Distributed resumed = distribute(world, *other, recipe, strategy);
    ASSERT_TRUE(resumed.resume(folder));
    EXPECT_EQ(resumed.learning_rate(), 0.013);
    EXPECT_EQ(resumed.optimizer().param_groups()[1].options().get_lr(), 0.007);
    train(other, resumed, 7, 11);
    resumed.flush();
    expect_same_bits(net, other, 11);
  });
  std::filesystem::remove_all(folder);
}

// A torch scheduler counts its own steps, which no checkpoint has: it makes them again, and the
// rates are put back. As docs/library.md shows it.
TEST(Rates, OfATorchSchedulerGoOnInAResumedRun) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("parameter_groups_test_{}", ::getpid());
  const OptimizerSpec recipe = grouped(sgd(0.1).momentum(0.9), 0.1);
  on_workers(2, [&](World& world) {
    const auto rates_of = [](Distributed& run) {
      std::vector<double> rates;
      for (const auto& group : run.optimizer().param_groups())
        rates.push_back(group.options().get_lr());
      return rates;
    };
    EveryLayer whole = fresh_net(), net = fresh_net();
    Distributed run = distribute(world, *whole, recipe);
    StepLR scheduler(run.optimizer(), 2, 0.5);
    std::vector<std::vector<double>> expected;
    for (int epoch = 0; epoch < 9; ++epoch) {
      train(whole, run, epoch, epoch + 1);
      scheduler.step();
      expected.push_back(rates_of(run));
      if (epoch == 2) run.save_checkpoint(folder.string(), {{"epoch", "3"}}, {.wait = true});
    }
    run.flush();
    Distributed again = distribute(world, *net, recipe);
    const auto first = again.resume(folder.string()).number("epoch", 0);
    ASSERT_EQ(first, 3);
    StepLR other(again.optimizer(), 2, 0.5);
    const auto rates = rates_of(again);
    for (std::int64_t epoch = 0; epoch < first; ++epoch) other.step();
    for (std::size_t i = 0; i < rates.size(); ++i)
      again.optimizer().param_groups()[i].options().set_lr(rates[i]);
    for (auto epoch = first; epoch < 9; ++epoch) {
      train(net, again, epoch, epoch + 1);
      other.step();
      EXPECT_EQ(rates_of(again), expected[static_cast<std::size_t>(epoch)]) << epoch;
    }
    again.flush();
    expect_same_bits(whole, net, 9);
  });
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace skein::parameter_groups_test

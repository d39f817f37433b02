// run.evaluate(), the moving average of weights, and files for other programs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "on_workers.h"
#include "skein/torch.h"
#include "skein/torch_tensors.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein::evaluate_test {
namespace {

namespace fs = std::filesystem;
using test::EveryLayer;
using test::flat_parameters;
using test::loss_at;
using test::on_workers;
using test::same_on_all;

constexpr int kSteps = 6;

EveryLayer make_net() {
  torch::manual_seed(3);
  return EveryLayer();
}

void train(
    World& world, EveryLayer& net, Distributed& run, int steps,
    const std::function<void()>& after_step = [] {}) {
  for (int step = 0; step < steps; ++step) {
    loss_at(net, step * world.size() + world.rank()).backward();
    run.step(4);
    after_step();
  }
}

torch::Tensor state_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> all{flat_parameters(module)};
  for (const auto& each : module.buffers())
    all.push_back(each.detach().to(torch::kFloat32).reshape({-1}));
  return torch::cat(all);
}

class Evaluate : public testing::TestWithParam<std::string> {};

// The same bits, with evaluations between the steps and without.
TEST_P(Evaluate, LeavesTrainingAsItWas) {
  on_workers(3, [](World& world) {
    std::vector<torch::Tensor> ends;
    for (const bool evaluates : {false, true}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.1).momentum(0.9), StrategySpec(GetParam()));
      net->words->eval();  // one part that does not learn; the norm does, and its buffers move
      int seen = 0;
      train(world, net, run, kSteps, [&] {
        if (!evaluates) return;
        const torch::Tensor before = state_of(*net);
        run.evaluate([&] {
          ++seen;
          EXPECT_FALSE(net->is_training());
          EXPECT_FALSE(net->head->is_training());
          EXPECT_FALSE(torch::GradMode::is_enabled());
          EXPECT_TRUE(same_on_all(world, state_of(*net)));
          static_cast<void>(loss_at(net, 100));
        });
        EXPECT_TRUE(net->is_training());
        EXPECT_TRUE(net->head->is_training());
        EXPECT_FALSE(net->words->is_training());
        EXPECT_TRUE(net->norm->is_training());
        EXPECT_TRUE(torch::equal(state_of(*net), before));
      });
      run.flush();
      ends.push_back(state_of(*net));
      EXPECT_EQ(seen, evaluates ? kSteps : 0);
    }
    EXPECT_TRUE(torch::equal(ends[0], ends[1]));
    EXPECT_FALSE(torch::equal(ends[0], state_of(*make_net())));
  });
}

INSTANTIATE_TEST_SUITE_P(Exact, Evaluate, testing::Values("allreduce", "dear"),
                         [](const auto& info) { return info.param; });

// Where workers have models of their own `body` sees their mean, and they keep theirs.
TEST(EvaluateApart, ShowsTheMeanOfTheWorkersModels) {
  on_workers(2, [](World& world) {
    for (const auto& strategy : {gossip().set("rate", "0.01"), acid().set("rate", "0.01")}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.1), strategy);
      train(world, net, run, 3);
      torch::Tensor judged;
      run.evaluate([&] { judged = state_of(*net); });
      EXPECT_TRUE(same_on_all(world, judged));
      // Nothing moves until the next step. Counts of batches are equal, and all else is a mean.
      const torch::Tensor own = state_of(*net);
      torch::Tensor mean = own.clone();
      all_reduce(world, mean, Reduce::mean);
      EXPECT_LT((mean - judged).abs().max().item<float>(), 1e-5) << strategy.name;
      EXPECT_FALSE(same_on_all(world, flat_parameters(*net))) << strategy.name;
      EXPECT_FALSE(same_on_all(world, net->norm->running_mean)) << strategy.name;
      EXPECT_FALSE(same_on_all(world, net->norm->running_var)) << strategy.name;
    }
  });
}

// As a loop at its own pace comes to it: after different numbers of steps.
TEST(EvaluateApart, WaitsForWorkersThatMakeMoreSteps) {
  for (const std::string& strategy : strategy_names())
    on_workers(3, [&](World& world) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
      for (int epoch = 0; epoch < 2; ++epoch) {
        train(world, net, run, 3 + world.rank());
        double loss = 0;
        run.evaluate([&] { loss = loss_at(net, 7).item<double>(); });
        const auto all = world.gather({loss});
        EXPECT_EQ(all[0], all[1]) << strategy;
        EXPECT_EQ(all[0], all[2]) << strategy;
      }
    });
}

TEST(EvaluateFaults, WhatTheBodyThrowsComesOutAndTheModuleIsAsItWas) {
  on_workers(1, [&](World& world) {
    EveryLayer net = make_net();
    Distributed run = distribute(world, *net, sgd(0.1));
    run.keep_ema(0.5);
    train(world, net, run, 2);
    const torch::Tensor before = state_of(*net);
    EXPECT_THROW(run.evaluate([] { throw std::runtime_error("no"); }, Weights::ema),
                 std::runtime_error);
    EXPECT_TRUE(torch::equal(state_of(*net), before));
    EXPECT_TRUE(net->is_training());
    loss_at(net, 0).backward();
    EXPECT_THROW(run.evaluate([] {}), ConfigError);  // in the middle of a step
    run.step(4);
    EXPECT_THROW(run.keep_ema(1), ConfigError);
    EXPECT_THROW(run.keep_ema(-0.1), ConfigError);
    Distributed other = std::move(run);
    EXPECT_NO_THROW(other.evaluate([] {}));
  });
}

TEST(EvaluateFaults, AnAverageThatNobodyKeepsIsRefused) {
  on_workers(1, [&](World& world) {
    EveryLayer net = make_net();
    Distributed run = distribute(world, *net, sgd(0.1));
    EXPECT_THROW(run.evaluate([] {}, Weights::ema), ConfigError);
    EXPECT_THROW(run.save("none.safetensors", Weights::ema), ConfigError);
    EXPECT_FALSE(fs::exists("none.safetensors"));
  });
}

// Against the recursion by hand, on the models that steps have left.
TEST_P(Evaluate, TheMovingAverageIsThatOfTheStepsModels) {
  on_workers(2, [](World& world) {
    torch::Tensor expected;
    for (const bool plain : {true, false}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.1).momentum(0.9),
                                   StrategySpec(plain ? "allreduce" : GetParam()));
      if (!plain) run.keep_ema(0.75);
      train(world, net, run, kSteps, [&] {
        if (!plain) return;
        const torch::Tensor now = flat_parameters(*net);
        expected = expected.defined() ? expected.lerp(now, 0.25) : now;
      });
      if (plain) continue;
      const torch::Tensor trained = flat_parameters(*net);
      torch::Tensor judged;
      run.evaluate([&] { judged = flat_parameters(*net); }, Weights::ema);
      EXPECT_TRUE(torch::equal(judged, expected));
      EXPECT_FALSE(torch::equal(judged, trained));
      EXPECT_TRUE(torch::equal(flat_parameters(*net), trained));
    }
  });
}

// The others make steps of which this worker hears in flush(): its model follows, and so does the
// average.
TEST(EvaluateApart, TheMovingAverageIsThatOfEveryUpdateHoweverManyStepsAWorkerMakes) {
  on_workers(2, [](World& world) {
    for (const char* strategy : {"allreduce", "dear", "abs"}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.05).momentum(0.9), StrategySpec(strategy));
      run.keep_ema(0.75);
      torch::Tensor expected;
      train(world, net, run, world.rank() == 0 ? 10 : 5, [&] {
        const torch::Tensor now = flat_parameters(*net);
        expected = expected.defined() ? expected.lerp(now, 0.25) : now;
      });
      run.flush();
      std::vector<torch::Tensor> flat;
      for (const NamedTensor& each : run.impl().averages().ema()->values())
        flat.push_back(each.tensor.reshape({-1}));
      const torch::Tensor average = torch::cat(flat);
      EXPECT_TRUE(same_on_all(world, flat_parameters(*net))) << strategy;
      EXPECT_TRUE(same_on_all(world, average)) << strategy;
      EXPECT_FALSE(torch::equal(average, flat_parameters(*net))) << strategy;
      // Under abs updates are not steps.
      if (strategy == std::string("abs") || world.rank() > 0) continue;
      EXPECT_TRUE(torch::equal(average, expected)) << strategy;
    }
  });
}

// What flush() leaves is judged as it is: models that are equal are not averaged once more, which
// could round them.
TEST(EvaluateApart, ShowsTheFlushedModelBitForBit) {
  on_workers(3, [](World& world) {
    for (const char* strategy : {"local", "lasgd"}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.1), StrategySpec(strategy));
      train(world, net, run, 5 + world.rank());
      run.flush();
      const torch::Tensor flushed = flat_parameters(*net);
      torch::Tensor judged;
      run.evaluate([&] { judged = flat_parameters(*net); });
      EXPECT_TRUE(torch::equal(judged, flushed)) << strategy;
      EXPECT_TRUE(torch::equal(flat_parameters(*net), flushed)) << strategy;
      EXPECT_TRUE(same_on_all(world, judged)) << strategy;
    }
  });
}

// Evaluations after whole periods leave the momentum of the mean as it is.
TEST(EvaluateApart, LeavesTheOuterMomentumAsItIs) {
  on_workers(2, [](World& world) {
    std::vector<torch::Tensor> ends;
    for (const bool evaluates : {false, true}) {
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.05),
                                   local().set("period", "3").set("outer_momentum", "0.7"));
      int step = 0;
      train(world, net, run, 12, [&] {
        if (evaluates && ++step % 3 == 0) run.evaluate([] {});
      });
      run.flush();
      ends.push_back(flat_parameters(*net));
    }
    EXPECT_TRUE(torch::equal(ends[0], ends[1]));
  });
}

// Each worker draws its own batches, at whatever pace.
TEST(Local, RepeatsBitForBitWithBatchesOfEachWorkersOwn) {
  on_workers(3, [](World& world) {
    std::vector<torch::Tensor> ends;
    for (const int slow : {0, 2}) {
      EveryLayer net = make_net();
      Distributed run =
          distribute(world, *net, sgd(0.05).momentum(0.9), local().set("period", "3"));
      train(world, net, run, 10, [&] {
        if (world.rank() == slow) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      });
      run.flush();
      ends.push_back(flat_parameters(*net));
    }
    EXPECT_TRUE(torch::equal(ends[0], ends[1]));
  });
}

// Whatever is frozen while the average begins: it is that of all parameters, and follows them when
// they are trained again.
TEST(EvaluateFrozen, TheMovingAverageHasWhatWasFrozenWhenItBegan) {
  on_workers(2, [](World& world) {
    for (const bool by_group : {true, false}) {
      EveryLayer net = make_net();
      Distributed run =
          distribute(world, *net, by_group ? sgd(0.1).group(group("conv.*").frozen()) : sgd(0.1));
      if (!by_group) run.freeze(named("conv.*"));
      run.keep_ema(0.75);
      torch::Tensor expected;
      const auto follow = [&] {
        const torch::Tensor now = flat_parameters(*net);
        expected = expected.defined() ? expected.lerp(now, 0.25) : now;
      };
      train(world, net, run, 2, follow);
      run.unfreeze(named("conv.*"));
      train(world, net, run, 3, follow);
      torch::Tensor judged;
      run.evaluate([&] { judged = flat_parameters(*net); }, Weights::ema);
      EXPECT_TRUE(torch::equal(judged, expected)) << by_group;
    }
  });
}

class EvaluateFiles : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("evaluate_test_" + std::to_string(::getpid()));
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
};

// A run that is stopped and goes on has the average of one that was not, on another number of
// workers too.
TEST_F(EvaluateFiles, ACheckpointHoldsTheMovingAverage) {
  for (const int workers : {2, 1})
    on_workers(workers, [&](World& world) {
      const std::string place = (folder_ / "run").string();
      EveryLayer net = make_net();
      Distributed run = distribute(world, *net, sgd(0.1).momentum(0.9));
      run.keep_ema(0.75);
      const bool resumed = static_cast<bool>(run.resume(place));
      EXPECT_EQ(resumed, workers == 1);
      if (!resumed) {
        train(world, net, run, 3);
        run.save_checkpoint(place, {}, {.wait = true});
        run.save((folder_ / "ema.safetensors").string(), Weights::ema);
        return;
      }
      const SafeTensors file = read_safetensors(folder_ / "ema.safetensors");
      run.evaluate(
          [&] {
            for (const auto& each : net->named_parameters()) {
              const torch::Tensor* const saved = file.find(each.key());
              ASSERT_TRUE(saved) << each.key();
              EXPECT_TRUE(torch::equal(*saved, each.value())) << each.key();
            }
          },
          Weights::ema);
    });
}

// Python with what is needed, or "" and why.
std::string python_with(const std::string& module) {
  for (const char* const python : {SKEIN_TEST_PYTHON, "python3", "/usr/bin/python3"})
    if (std::system(
            (std::string(python) + " -c 'import torch, " + module + "' 2>/dev/null").c_str()) == 0)
      return python;
  return "";
}

constexpr const char* kModels = R"(
import sys, torch
class EveryLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.words = torch.nn.Embedding(10, 6)
        self.lstm = torch.nn.LSTM(6, 5, batch_first=True)
        self.head = torch.nn.Linear(9, 3)
    def forward(self, image, text):
        seen = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        read = self.lstm(self.words(text))[0][:, -1]
        return self.head(torch.cat([seen, read], 1))
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Parameter(torch.randn(4, 4))
        self.decoder = self.encoder
        self.bias = torch.nn.Parameter(torch.zeros(4))
)";

void run_python(const std::string& python, const fs::path& script, const std::string& text) {
  std::ofstream(script) << kModels << text;
  EXPECT_EQ(std::system((python + " " + script.string()).c_str()), 0);
}

// What a Python program of the same architecture computes from it is what this one does.
TEST_F(EvaluateFiles, APythonModelLoadsTheStateDict) {
  const std::string python = python_with("sys");
  if (python.empty()) GTEST_SKIP() << "no python3 here has torch";
  on_workers(1, [&](World& world) {
    EveryLayer net = make_net();
    Distributed run = distribute(world, *net, sgd(0.1));
    train(world, net, run, 2);
    run.save((folder_ / "model.pt").string());
    torch::Tensor logits;
    run.evaluate([&] {
      logits = net(torch::ones({2, 1, 8, 8}), torch::arange(10).reshape({2, 5})).sum();
    });
    test::Tied tied;
    Distributed second = distribute(world, *tied, sgd(0.1));
    second.save((folder_ / "tied.pth").string());
    run_python(
        python, folder_ / "load.py",
        "model = EveryLayer()\n"
        "model.load_state_dict(torch.load('" +
            (folder_ / "model.pt").string() +
            "'))\n"
            "model.eval()\n"
            "got = model(torch.ones(2, 1, 8, 8), torch.arange(10).reshape(2, 5)).sum().item()\n"
            "assert abs(got - " +
            std::to_string(logits.item<double>()) +
            ") < 1e-4, got\n"
            "tied = Tied()\n"
            "tied.load_state_dict(torch.load('" +
            (folder_ / "tied.pth").string() + "'))\n");
  });
}

TEST_F(EvaluateFiles, PythonsSafetensorsReadsTheModel) {
  const std::string python = python_with("safetensors.torch");
  if (python.empty()) GTEST_SKIP() << "no python3 here has torch and safetensors";
  on_workers(2, [&](World& world) {
    EveryLayer net = make_net();
    Distributed run = distribute(world, *net, sgd(0.1));
    train(world, net, run, 3);
    run.save((folder_ / "model.safetensors").string());
    // Every tensor, weighed by position: buffers as they are averaged.
    std::string sums;
    run.evaluate([&] {
      for (const auto& each : tensors_of(*net)) {
        const auto values = each.tensor.detach().to(torch::kFloat64).reshape({-1});
        const double sum = (values * torch::arange(1, values.numel() + 1)).sum().item<double>();
        sums += fmt::format("'{}': {},", each.name, sum);
      }
    });
    if (world.rank() == 0) std::ofstream(folder_ / "sums.py") << "sums = {" << sums << "}\n";
  });
  run_python(python, folder_ / "load.py",
             "from sums import sums\n"
             "from safetensors.torch import load_file\n"
             "model = EveryLayer()\n"
             "model.load_state_dict(load_file('" +
                 (folder_ / "model.safetensors").string() +
                 "'))\n"
                 "assert set(sums) == set(model.state_dict())\n"
                 "for name, value in model.state_dict().items():\n"
                 "    flat = value.double().reshape(-1)\n"
                 "    got = (flat * torch.arange(1., len(flat) + 1.).double()).sum().item()\n"
                 "    assert abs(got - sums[name]) < 1e-5 * (1 + abs(got)), (name, got)\n");
}

}  // namespace
}  // namespace skein::evaluate_test

// Loops over share() that evaluate, loops that are not as they should be, and two models' loops.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "on_workers.h"
#include "skein/torch.h"
#include "skein/torch_share.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::share_evaluation_test {
namespace {

using test::contains;
using test::flat_parameters;
using test::message_of;
using test::same_on_all;

constexpr std::int64_t kInputs = 4, kBatch = 4;

struct Data {
  explicit Data(std::int64_t size) {
    torch::manual_seed(3);
    inputs = torch::randn({size, kInputs});
    targets = inputs.sum(1, true) + 0.1 * torch::randn({size, 1});
  }
  torch::Tensor inputs, targets;
};

torch::nn::Linear fresh_net() {
  torch::manual_seed(1);
  return torch::nn::Linear(kInputs, 1);
}

torch::Tensor loss_on(torch::nn::Linear& net, const torch::Tensor& x, const torch::Tensor& y) {
  return torch::nn::functional::mse_loss(net->forward(x), y);
}

// How often all workers together were shown each sample.
std::map<std::int64_t, int> counted(World& world, const std::vector<std::int64_t>& seen) {
  std::string text;
  for (const std::int64_t each : seen) text += std::to_string(each) + " ";
  std::map<std::int64_t, int> counts;
  for (const std::string& theirs : world.gather_text(text)) {
    std::istringstream in(theirs);
    for (std::int64_t each = 0; in >> each;) ++counts[each];
  }
  return counts;
}

void expect_each_once(const std::map<std::int64_t, int>& counts, std::int64_t size) {
  EXPECT_EQ(std::ssize(counts), size);
  for (const auto& [sample, times] : counts) EXPECT_EQ(times, 1) << sample;
}

void train(Distributed& run, torch::nn::Linear& net, const Data& data, int steps) {
  for (int step = 0; step < steps; ++step) {
    loss_on(net, data.inputs.narrow(0, 0, 2), data.targets.narrow(0, 0, 2)).backward();
    run.step(2);
  }
}

// What all workers find of the model that evaluate() shows: the mean loss of the dataset. Checks
// which samples the loop showed, and the result against one worker's that sees all of them.
double evaluated(World& world, Distributed& run, torch::nn::Linear& net, const Data& data,
                 int prefetch = 2) {
  const std::int64_t size = data.inputs.size(0);
  std::vector<std::int64_t> seen;
  double sum = 0, expected = 0;
  bool short_before = false;
  run.evaluate([&] {
    for (auto& batch : run.share(data.inputs, data.targets,
                                 {.batch = kBatch, .prefetch = prefetch, .evaluate = true})) {
      EXPECT_FALSE(short_before) << "only the last one is short";
      short_before = batch.size < kBatch;
      EXPECT_EQ(batch.size, std::ssize(batch.indices));
      EXPECT_EQ(batch.data.size(0), batch.size);
      for (std::int64_t i = 0; i < batch.size; ++i) {
        seen.push_back(static_cast<std::int64_t>(batch.indices[static_cast<std::size_t>(i)]));
        EXPECT_TRUE(torch::equal(batch.data[i], data.inputs[seen.back()]));
      }
      sum +=
          loss_on(net, batch.data, batch.target).item<double>() * static_cast<double>(batch.size);
    }
    expected = loss_on(net, data.inputs, data.targets).item<double>();
  });
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  expect_each_once(counted(world, seen), size);
  const double loss = world.sum({sum}).front() / static_cast<double>(size);
  EXPECT_NEAR(loss, expected, 1e-5 * expected) << "but for the order in which floats are added";
  return loss;
}

class ShareEvaluation : public testing::TestWithParam<std::string> {};

// Sizes that divide, that do not, and fewer samples than workers.
TEST_P(ShareEvaluation, ShowsEverySampleOnceInOrderAndTrainsNothing) {
  for (const int workers : {1, 2, 3})
    test::on_workers(workers, [&](World& world) {
      const Data training(8);
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.02).momentum(0.9).weight_decay(0.01),
                            StrategySpec(GetParam()));
      train(run, net, training, 3);
      run.flush();
      const torch::Tensor before = flat_parameters(*net);
      const std::int64_t steps = run.steps(), samples = run.samples();
      for (const std::int64_t size : {24, 25, 37, 2})
        for (const int prefetch : {0, 3}) {
          SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(size) + " samples");
          evaluated(world, run, net, Data(size), prefetch);
        }
      run.flush();
      EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
      EXPECT_EQ(run.steps(), steps);
      EXPECT_EQ(run.samples(), samples);
    });
}

// In the middle of a loop that trains. Each worker comes to it after its first three batches: at
// their own pace workers have different numbers of batches, but all have these.
TEST_P(ShareEvaluation, RunsBetweenTheBatchesOfALoopThatTrains) {
  test::on_workers(3, [&](World& world) {
    const Data training(90), test(25);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.02), StrategySpec(GetParam()));
    const bool draws_alone = run.impl().strategy().survives_losses();
    std::vector<std::int64_t> seen;
    std::vector<double> losses;
    for (auto& batch : run.share(training.inputs, training.targets, {.batch = kBatch})) {
      for (const std::size_t index : batch.indices)
        seen.push_back(static_cast<std::int64_t>(index));
      if (losses.size() == 1) losses.push_back(evaluated(world, run, net, test));  // before step()
      loss_on(net, batch.data, batch.target).backward();
      run.step();
      if (losses.size() != 1 && losses.size() < 3)
        losses.push_back(evaluated(world, run, net, test));
    }
    EXPECT_EQ(losses.size(), 3u);
    losses.push_back(evaluated(world, run, net, test));
    for (const double loss : losses) EXPECT_TRUE(same_on_all(world, torch::tensor({loss})));
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
    if (draws_alone) {
      EXPECT_GE(run.samples(), 90);
    } else {
      expect_each_once(counted(world, seen), 90);
      EXPECT_EQ(run.samples(), 90);
    }
  });
}

TEST_P(ShareEvaluation, ATrainingLoopInsideEvaluateIsRefusedOnAll) {
  test::on_workers(2, [&](World& world) {
    const Data data(40);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.05).momentum(0.9), StrategySpec(GetParam()));
    train(run, net, data, 3);
    run.flush();
    const torch::Tensor before = flat_parameters(*net);
    const std::int64_t steps = run.steps(), samples = run.samples();
    const std::string why = message_of<ConfigError>([&] {
      run.evaluate([&] {
        for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8}))
          net->forward(batch.data);
      });
    });
    EXPECT_TRUE(contains(why, {"share()", "evaluate()", ".evaluate = true"}));
    run.flush();
    EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
    EXPECT_EQ(run.steps(), steps);
    EXPECT_EQ(run.samples(), samples);
    EXPECT_TRUE(net->is_training());
    for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8})) {
      loss_on(net, batch.data, batch.target).backward();
      run.step();
    }
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
  });
}

// A resumed run that evaluates goes on where it was: nothing of the training order is used up.
TEST(ShareEvaluationAndResume, TakesNothingOfTheTrainingOrder) {
  const std::string place =
      (std::filesystem::temp_directory_path() / ("share_evaluation_" + std::to_string(::getpid())))
          .string();
  std::filesystem::create_directories(place);
  test::on_workers(2, [&](World& world) {
    const Data training(40), test(10);
    // The samples of this worker, and the model, of a run that is stopped after `until` samples.
    const auto run_until = [&](const std::string& dir, std::int64_t until, bool evaluates) {
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.02).momentum(0.5));
      run.resume(dir);
      std::vector<std::int64_t> seen;
      if (evaluates) evaluated(world, run, net, test);
      for (auto& batch :
           run.share(training.inputs, training.targets, {.batch = kBatch, .epochs = 2})) {
        for (const std::size_t index : batch.indices)
          seen.push_back(static_cast<std::int64_t>(index));
        loss_on(net, batch.data, batch.target).backward();
        run.step();
        if (evaluates) evaluated(world, run, net, test);
        if (run.samples() >= until) break;
      }
      run.save_checkpoint(dir, {}, {.wait = true});
      return std::pair(seen, flat_parameters(*net));
    };
    const auto [whole, expected] = run_until(place + "/whole", 1000, false);
    const auto first = run_until(place + "/cut", 24, true);
    auto [seen, model] = run_until(place + "/cut", 1000, true);
    seen.insert(seen.begin(), first.first.begin(), first.first.end());
    EXPECT_EQ(seen, whole);
    EXPECT_TRUE(torch::equal(model, expected));
  });
  std::filesystem::remove_all(place);
}

// The living divide the whole dataset among themselves.
TEST(ShareEvaluationAfterALoss, CountsEverySampleAmongThoseWhoLive) {
  for (const char* strategy : {"gossip", "acid"})
    for (const int victim : {0, 2}) {
      const auto statuses = test::statuses_of_workers(3, [&](World world) {
        const Data data(37);
        auto net = fresh_net();
        auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
        train(run, net, data, 5);
        evaluated(world, run, net, data);
        if (world.rank() == victim) ::raise(SIGKILL);
        train(run, net, data, 5);
        evaluated(world, run, net, data);
        run.verify();
        std::int64_t count = 0;
        run.evaluate([&] {
          for (auto& batch : run.share(37, {.batch = 5, .evaluate = true})) count += batch.size;
          EXPECT_EQ(world.sum_integers({count}).front(), 37) << "inside evaluate()";
        });
      });
      for (int rank = 0; rank < 3; ++rank) {
        const int status = statuses[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(rank == victim ? WIFSIGNALED(status) : status == 0) << strategy << " " << rank;
      }
    }
}

// One worker has the sample that cannot be read.
TEST(ShareEvaluationFaults, WhatTheDatasetThrowsComesOutAndTheRunGoesOn) {
  for (const char* strategy : {"allreduce", "abs", "gossip"})
    for (const int prefetch : {0, 3})
      test::on_workers(2, [&](World& world) {
        const Data data(30);
        auto net = fresh_net();
        auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
        train(run, net, data, 2);
        const auto load = [](const std::vector<std::size_t>& indices) {
          if (std::ranges::find(indices, std::size_t{13}) != indices.end())
            throw std::out_of_range("sample 13 cannot be read");
          return indices.size();
        };
        const std::string why = message_of<std::out_of_range>([&] {
          run.evaluate([&] {
            for (auto& batch :
                 run.share(30, load, {.batch = 3, .prefetch = prefetch, .evaluate = true}))
              EXPECT_EQ(static_cast<std::int64_t>(batch.value), batch.size);
          });
        });
        EXPECT_EQ(why, world.rank() == 0 ? "sample 13 cannot be read" : "");
        EXPECT_TRUE(net->is_training());
        train(run, net, data, 2);
        evaluated(world, run, net, data);
      });
}

TEST(ShareEvaluationFaults, WhatCannotBeIsAnErrorOnAll) {
  test::on_workers(2, [](World& world) {
    const Data data(40);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.01));
    const auto why = [&](std::int64_t size, const ShareOptions& options) {
      return message_of<ConfigError>(
          [&] { run.evaluate([&] { static_cast<void>(run.share(size, options)); }); });
    };
    EXPECT_TRUE(contains(why(40, {.epochs = 2, .evaluate = true}), {"once", "epochs"}));
    EXPECT_TRUE(contains(why(40, {.first_epoch = 1, .evaluate = true}), {"once", "first_epoch"}));
    EXPECT_TRUE(contains(why(0, {.evaluate = true}), {"samples in the dataset: 0"}));
    EXPECT_TRUE(contains(why(40 + world.rank(), {.evaluate = true}),
                         {"40 samples to evaluate", "41 samples to evaluate"}));
    EXPECT_TRUE(contains(
        why(40, {.evaluate = world.rank() == 0}),
        {"rank 0 called run.share() of 40 samples to evaluate", "rank 1 called run.share()"}));
    // What would train, or take the lent model for the run's.
    const auto inside = [&](const std::function<void()>& body) {
      return message_of<ConfigError>([&] { run.evaluate(body); });
    };
    EXPECT_TRUE(contains(inside([&] { run.step(4); }), {"step()", "inside evaluate()"}));
    EXPECT_TRUE(contains(inside([&] { run.flush(); }), {"flush()", "inside evaluate()"}));
    EXPECT_TRUE(contains(inside([&] { run.save("none.safetensors"); }), {"inside evaluate()"}));
    EXPECT_TRUE(contains(inside([&] { run.evaluate([] {}); }), {"inside evaluate()"}));
    EXPECT_FALSE(std::filesystem::exists("none.safetensors"));
    evaluated(world, run, net, data);
  });
}

// At their own pace workers may come to evaluate() inside a loop unequally often: all are told.
TEST(ShareEvaluationFaults, AWorkerWhoseLoopIsOverDoesNotPassForOneThatEvaluates) {
  for (const char* strategy : {"allreduce", "dear", "abs", "lasgd", "local"}) {
    int drawn[2];  // rank 0 has a batch: without it rank 1 may take them all
    ASSERT_EQ(::pipe(drawn), 0);
    test::on_workers(2, [&](World& world) {
      const Data data(40);
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
      const std::string why = message_of<ConfigError>([&] {
        bool first = true;
        for (auto& batch : run.share(data.inputs, data.targets, {.batch = kBatch})) {
          char byte = 0;
          if (std::exchange(first, false)) {
            EXPECT_EQ(world.rank() == 0 ? ::write(drawn[1], &byte, 1) : ::read(drawn[0], &byte, 1),
                      1);
          }
          loss_on(net, batch.data, batch.target).backward();
          run.step();
          if (world.rank() == 0) run.evaluate([] {});
        }
      });
      EXPECT_TRUE(
          contains(why, {"rank 0 called run.evaluate()", "the end of a loop over run.share()"}))
          << strategy;
    });
    ::close(drawn[0]);
    ::close(drawn[1]);
  }
}

class ShareLoops : public testing::TestWithParam<std::string> {};

TEST_P(ShareLoops, InsideEachOtherAreRefused) {
  test::on_workers(2, [&](World& world) {
    const Data data(64);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.01), StrategySpec(GetParam()));
    std::vector<std::int64_t> seen;
    for (auto& batch : run.share(data.inputs, data.targets, {.batch = kBatch})) {
      for (const std::size_t index : batch.indices)
        seen.push_back(static_cast<std::int64_t>(index));
      EXPECT_TRUE(contains(message_of<ConfigError>([&] {
                             for (auto& inner : run.share(64, {.batch = kBatch}))
                               run.step(inner.size);
                           }),
                           {"share()", "has not ended", ".evaluate = true"}));
      loss_on(net, batch.data, batch.target).backward();
      run.step();
    }
    if (!run.impl().strategy().survives_losses()) expect_each_once(counted(world, seen), 64);
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
  });
}

TEST_P(ShareLoops, WithoutAStepOnAnyWorkerAreAnErrorOnAllAtTheirEnd) {
  test::on_workers(2, [&](World& world) {
    const Data data(64);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.01), StrategySpec(GetParam()));
    const torch::Tensor before = flat_parameters(*net);
    EXPECT_TRUE(contains(message_of<ConfigError>([&] {
                           for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8}))
                             net->forward(batch.data);
                         }),
                         {"made no step", "step()", ".evaluate = true"}));
    EXPECT_TRUE(torch::equal(flat_parameters(*net), before));
    EXPECT_EQ(run.samples(), 0);
    for (auto& batch : run.share(64, {.batch = 8})) {  // a look at the first batch
      EXPECT_EQ(batch.size, 8);
      break;
    }
    for (const int who : {0, 1, 2}) {  // leaves out every second of its batches; 2: nobody does
      int batches = 0;
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8})) {
        if (world.rank() == who && ++batches % 2 == 1) continue;
        loss_on(net, batch.data, batch.target).backward();
        run.step();
      }
    }
    EXPECT_GT(run.samples(), 0);
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
  });
}

TEST_P(ShareLoops, BeginAfterStepsOfDifferentNumbers) {
  test::on_workers(3, [&](World& world) {
    const Data data(60);
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.01), StrategySpec(GetParam()));
    std::vector<std::int64_t> seen;
    for (int loop = 0; loop < 2; ++loop) {
      train(run, net, data, 1 + 3 * (loop == 0 ? world.rank() : 2 - world.rank()));
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = kBatch})) {
        if (loop == 0)
          for (const std::size_t index : batch.indices)
            seen.push_back(static_cast<std::int64_t>(index));
        loss_on(net, batch.data, batch.target).backward();
        run.step();
      }
    }
    if (!run.impl().strategy().survives_losses()) expect_each_once(counted(world, seen), 60);
    EXPECT_TRUE(same_on_all(world, flat_parameters(*net)));
    EXPECT_EQ(world.present(), std::vector<bool>(3, true));
  });
}

// Each has drawn batches, and gone on to draw, while the other had.
TEST_P(ShareLoops, OfTwoModelsAreOpenAtTheSameTime) {
  test::on_workers(3, [&](World& world) {
    const Data data(60);
    auto one = fresh_net(), other = fresh_net();
    auto first = distribute(world, *one, sgd(0.01), StrategySpec(GetParam()));
    auto second = distribute(world, *other, sgd(0.02), StrategySpec(GetParam()));
    const auto step = [&](Distributed& run, torch::nn::Linear& net, auto& batch) {
      loss_on(net, batch.data, batch.target).backward();
      run.step();
    };
    std::vector<std::int64_t> firsts, seconds;
    const auto note = [](std::vector<std::int64_t>& seen, const SharedFacts& batch) {
      for (const std::size_t index : batch.indices)
        seen.push_back(batch.epoch * 1000 + static_cast<std::int64_t>(index));
    };
    {
      auto batches = second.share(data.inputs, data.targets, {.batch = kBatch, .epochs = 2});
      auto batch = batches.begin();
      for (auto& each :
           first.share(data.inputs, data.targets, {.batch = kBatch, .epochs = 2, .seed = 8})) {
        note(firsts, each);
        step(first, one, each);
      }
      for (; batch != batches.end(); ++batch) {
        note(seconds, *batch);
        step(second, other, *batch);
      }
    }
    if (!first.impl().strategy().survives_losses()) {
      expect_each_once(counted(world, firsts), 120);
      expect_each_once(counted(world, seconds), 120);
      EXPECT_EQ(first.samples(), 120);
      EXPECT_EQ(second.samples(), 120);
    }
    EXPECT_TRUE(same_on_all(world, flat_parameters(*one)));
    EXPECT_TRUE(same_on_all(world, flat_parameters(*other)));
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, ShareEvaluation, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Strategies, ShareLoops, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace skein::share_evaluation_test

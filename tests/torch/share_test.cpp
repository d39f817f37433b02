// Loops over a dataset that all workers share.
#include "skein/torch_share.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <thread>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::share_test {
namespace {

constexpr std::int64_t kInputs = 4;

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

// A loop's batches on this worker, as epoch * 1000 + index.
using Seen = std::vector<std::int64_t>;

// How often each sample of each epoch was seen by all workers.
std::map<std::int64_t, int> counted(World& world, const Seen& seen) {
  std::string text;
  for (const std::int64_t each : seen) text += std::to_string(each) + " ";
  std::map<std::int64_t, int> counts;
  for (const std::string& theirs : world.gather_text(text)) {
    std::istringstream in(theirs);
    for (std::int64_t each = 0; in >> each;) ++counts[each];
  }
  return counts;
}

void note(Seen& seen, const SharedFacts& batch) {
  EXPECT_EQ(batch.size, std::ssize(batch.indices));
  EXPECT_GT(batch.size, 0);
  for (const std::size_t index : batch.indices)
    seen.push_back(batch.epoch * 1000 + static_cast<std::int64_t>(index));
}

// Sizes that divide, that do not, and fewer samples than workers.
TEST(Share, EverySampleComesOnceAnEpochWhateverTheNumbers) {
  for (const char* strategy : {"allreduce", "dear", "abs", "lasgd", "local"})
    for (const int workers : {1, 2, 3})
      test::on_workers(workers, [&](World& world) {
        for (const std::int64_t size : {24, 25, 37, 2}) {
          SCOPED_TRACE(std::string(strategy) + " " + std::to_string(size));
          const Data data(size);
          auto net = fresh_net();
          auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
          Seen seen;
          for (auto& batch :
               run.share(data.inputs, data.targets, {.batch = 4, .epochs = 3, .seed = 5})) {
            note(seen, batch);
            if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::microseconds(300));
            loss_on(net, batch.data, batch.target).backward();
            run.step();
          }
          const auto counts = counted(world, seen);
          EXPECT_EQ(std::ssize(counts), 3 * size);
          for (const auto& [sample, times] : counts) EXPECT_EQ(times, 1) << sample;
          EXPECT_EQ(run.samples(), 3 * size);
          EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
        }
      });
}

// The short last batch of an epoch too: the mean over all samples of it.
TEST(Share, ShortBatchesCountAsOneWorkerWouldCountThem) {
  const Data data(37);
  for (const int workers : {1, 3})
    test::on_workers(workers, [&](World& world) {
      auto net = fresh_net();
      std::vector<torch::Tensor> batches;
      auto run = distribute(world, *net, sgd(0.05));
      for (auto& batch : run.share(std::vector{data.inputs, data.targets},
                                   {.batch = 12 / workers, .epochs = 4})) {
        batches.push_back(
            torch::tensor(std::vector<std::int64_t>(batch.indices.begin(), batch.indices.end())));
        loss_on(net, batch.value[0], batch.value[1]).backward();
        run.step(batch.size);
      }
      // What one process makes of the same global batches: those of one worker with all of it.
      auto alone = fresh_net();
      torch::optim::SGD plain(alone->parameters(), 0.05);
      GlobalBatches order(37, 12, 0);
      for (int step = 0; step < 4 * 4; ++step) {
        const auto indices = order.next();
        const torch::Tensor rows =
            torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
        plain.zero_grad();
        loss_on(alone, data.inputs.index_select(0, rows), data.targets.index_select(0, rows))
            .backward();
        plain.step();
      }
      EXPECT_EQ(std::ssize(batches), world.rank() == 0 ? 16 : 12) << "one sample is rank 0's";
      const double difference =
          (test::flat_parameters(*net) - test::flat_parameters(*alone)).abs().max().item<double>();
      EXPECT_LT(difference, 1e-6) << "but for the order in which floats are added";
    });
}

struct Squares : torch::data::Dataset<Squares> {
  torch::data::Example<> get(std::size_t index) override {
    if (index == bad) throw std::out_of_range("sample 13 cannot be read");
    return {torch::full({kInputs}, static_cast<float>(index)), torch::ones({1})};
  }
  torch::optional<std::size_t> size() const override { return 30; }
  std::size_t bad = 99;
};

TEST(Share, TakesDatasetsAndFunctionsOfIndices) {
  test::on_workers(2, [](World& world) {
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.001));
    const ShareOptions options{.batch = 4, .epochs = 1};
    const auto check = [&](const auto& batch) {
      ASSERT_EQ(batch.data.sizes(), (std::vector<std::int64_t>{batch.size, kInputs}));
      for (std::int64_t i = 0; i < batch.size; ++i)
        EXPECT_EQ(batch.data[i][0].template item<float>(),
                  static_cast<float>(batch.indices[static_cast<std::size_t>(i)]));
      loss_on(net, batch.data, batch.target).backward();
      run.step();
    };
    Squares squares;
    for (auto& batch : run.share(squares, options)) check(batch);
    for (auto& batch : run.share(Squares(), options)) check(batch);
    for (auto& batch : run.share(Squares().map(torch::data::transforms::Stack<>()), options))
      check(batch);
    int steps = 0;
    for (auto& batch : run.share(30, options)) {
      ++steps;
      loss_on(net, torch::ones({batch.size, kInputs}), torch::ones({batch.size, 1})).backward();
      run.step();
    }
    EXPECT_EQ(steps, 4);
    const auto doubled = [](const std::vector<std::size_t>& indices) { return 2 * indices.at(0); };
    for (auto& batch : run.share(30, doubled, {.batch = 4, .shuffle = false, .prefetch = 0})) {
      EXPECT_EQ(batch.value, 2 * batch.indices[0]);
      loss_on(net, torch::ones({batch.size, kInputs}), torch::ones({batch.size, 1})).backward();
      run.step();
    }
    EXPECT_EQ(run.samples(), 5 * 30);
  });
}

TEST(Share, WhatTheDatasetThrowsComesOutOfTheLoop) {
  for (const char* strategy : {"allreduce", "abs"})
    for (const int prefetch : {0, 3})
      test::as_workers(2, [&](World world) {
        auto net = fresh_net();
        std::string why;
        try {
          auto run = distribute(world, *net, sgd(0.001), StrategySpec(strategy));
          Squares squares;
          squares.bad = 13;
          for (auto& batch : run.share(squares, {.batch = 3, .epochs = 2, .prefetch = prefetch})) {
            loss_on(net, batch.data, batch.target).backward();
            run.step();
          }
        } catch (const std::out_of_range& error) {
          why = error.what();
        } catch (const IoError& error) {
          why = error.what();
        }
        EXPECT_TRUE(why == "sample 13 cannot be read" || test::contains(why, {"rank"})) << why;
      });
}

// On one worker, on all, before step() or after it: everybody comes to the end, with one model.
TEST(Share, ABreakHoldsNobodyUp) {
  for (const std::string& strategy : strategy_names())
    test::on_workers(3, [&](World& world) {
      SCOPED_TRACE(strategy);
      const Data data(60);
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
      for (const int breaks : {1, 0, 3}) {  // which rank; 3: all
        int batches = 0;
        for (auto& batch : run.share(data.inputs, data.targets, {.batch = 4, .epochs = 2})) {
          const bool mine = breaks == 3 || world.rank() == breaks;
          if (mine && ++batches == 3) break;
          loss_on(net, batch.data, batch.target).backward();
          run.step();
        }
        EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
      }
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8})) {
        if (batch.epoch == 0 && batch.indices[0] % 3 == 0) continue;  // left out
        loss_on(net, batch.data, batch.target).backward();
        run.step();
      }
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
    });
}

TEST(Share, StrategiesThatSurviveLossesEndWhenAllHaveDoneEnough) {
  for (const char* strategy : {"gossip", "acid"})
    test::on_workers(3, [&](World& world) {
      const Data data(50);
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = 4, .epochs = 3})) {
        std::this_thread::sleep_for(std::chrono::microseconds(500 * world.rank()));
        loss_on(net, batch.data, batch.target).backward();
        run.step();
      }
      EXPECT_GE(run.samples(), 150);
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
    });
}

// As after Distributed::resume(): the first loops pass over what has been trained.
TEST(Share, ResumedLoopsGoOnInTheMiddleOfAnEpoch) {
  test::on_workers(2, [](World& world) {
    const ShareOptions options{.batch = 4, .epochs = 3, .seed = 9};
    // Two loops from there on, the first up to `until`: what all workers saw in each.
    const auto train = [&](std::int64_t from, std::int64_t until) {
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01));
      run.impl().worker().progress.samples = from;
      std::vector<std::map<std::int64_t, int>> loops;
      for (const std::int64_t end : {until, std::int64_t{1000}}) {
        Seen seen;
        for (auto& batch : run.share(25, options)) {
          note(seen, batch);
          loss_on(net, torch::ones({batch.size, kInputs}), torch::ones({batch.size, 1})).backward();
          run.step();
          if (run.samples() >= end) break;
        }
        loops.push_back(counted(world, seen));
      }
      return loops;
    };
    const auto whole = train(0, 1000), begun = train(0, 33), rest = train(33, 1000);
    EXPECT_EQ(std::ssize(whole[0]), 75);
    EXPECT_EQ(whole[1], whole[0]) << "a loop that was not resumed begins anew";
    EXPECT_EQ(std::ssize(begun[0]), 33);
    EXPECT_EQ(std::ssize(rest[0]), 75 - 33);
    auto joined = begun[0];
    joined.insert(rest[0].begin(), rest[0].end());
    EXPECT_EQ(joined, whole[0]);
    EXPECT_EQ(rest[1], whole[0]);
    const auto later = train(75 + 33, 1000);
    EXPECT_TRUE(later[0].empty());
    EXPECT_EQ(later[1], rest[0]);
  });
}

TEST(Share, DifferentOptionsAreAnErrorOnAll) {
  test::on_workers(2, [](World& world) {
    auto net = fresh_net();
    auto run = distribute(world, *net, sgd(0.01));
    const auto why = [&](std::int64_t size, const ShareOptions& options) -> std::string {
      try {
        for (auto& batch : run.share(size, options)) run.step(batch.size);
      } catch (const ConfigError& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_TRUE(test::contains(why(20 + world.rank(), {}), {"share of 20 samples", "share of 21"}));
    EXPECT_TRUE(test::contains(why(20, {.batch = 0}), {"batch 0"}));
    EXPECT_TRUE(test::contains(why(0, {}), {"samples in the dataset: 0"}));
    EXPECT_THROW(run.step(), ConfigError);
    EXPECT_EQ(why(20, {.epochs = 0}), "");
  });
}

// A signal to one worker of three.
TEST(Share, StopsAllWorkersAfterTheSameStep) {
  for (const std::string& strategy : strategy_names())
    test::on_workers(3, [&](World& world) {
      SCOPED_TRACE(strategy);
      stop_on_signals();
      const Data data(64);
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.001), StrategySpec(strategy));
      std::int64_t steps = 0;
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = 4, .epochs = 100000})) {
        loss_on(net, batch.data, batch.target).backward();
        run.step();
        if (++steps == 20 && world.rank() == 1) ::raise(SIGTERM);
      }
      EXPECT_TRUE(run.stopping());
      EXPECT_EQ(stop_is_urgent(), world.rank() == 1);
      if (run.impl().strategy().lockstep()) {
        EXPECT_EQ(world.min_integers({steps}), world.max_integers({steps}));
        EXPECT_LT(steps, 40);
      }
      EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*net)));
    });
}

}  // namespace
}  // namespace skein::share_test

// Loops over a dataset that all workers share.
#include "skein/torch_share.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <thread>

#include "on_workers.h"
#include "resuming_job.h"
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

// A backward pass of so many samples that are all ones.
void backward_of_ones(torch::nn::Linear& net, std::int64_t samples) {
  loss_on(net, torch::ones({samples, kInputs}), torch::ones({samples, 1})).backward();
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
      backward_of_ones(net, batch.size);
      run.step();
    }
    EXPECT_EQ(steps, 4);
    const auto doubled = [](const std::vector<std::size_t>& indices) { return 2 * indices.at(0); };
    for (auto& batch : run.share(30, doubled, {.batch = 4, .shuffle = false, .prefetch = 0})) {
      EXPECT_EQ(batch.value, 2 * batch.indices[0]);
      backward_of_ones(net, batch.size);
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
        EXPECT_THROW(run.step(), ConfigError) << "of a batch that is no more";
      }
      for (auto& batch : run.share(data.inputs, data.targets, {.batch = 8})) {
        if (batch.indices[0] % 3 == 0) continue;  // left out
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

// Two loops, in a run that is saved in the middle of one, or between them, and resumed.
TEST(Share, ResumedLoopsGoOnInTheMiddleOfAnEpoch) {
  const test::TemporaryFolder folder;
  test::on_workers(2, [&](World& world) {
    const Data data(25);
    const ShareOptions options{.batch = 4, .epochs = 3, .seed = 9};
    torch::Tensor trained;
    // What all workers saw in each loop, until so many samples were trained on.
    const auto train = [&](const std::string& dir, std::int64_t until) {
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01));
      run.resume(dir);
      std::vector<std::map<std::int64_t, int>> loops(2);
      for (auto& loop : loops) {
        Seen seen;
        for (auto& batch : run.share(data.inputs, data.targets, options)) {
          note(seen, batch);
          loss_on(net, batch.data, batch.target).backward();
          run.step();
          if (run.samples() >= until) break;
        }
        loop = counted(world, seen);
        if (run.samples() >= until) break;
      }
      run.save_checkpoint(dir, {}, {.wait = true});
      trained = test::flat_parameters(*net);
      return loops;
    };
    const auto whole = train(folder / "whole", 1000);
    const torch::Tensor expected = trained;
    for (const auto& loop : whole) EXPECT_EQ(std::ssize(loop), 75);
    EXPECT_EQ(whole[0].rbegin()->first / 1000, 2) << "epochs are numbered through";
    EXPECT_EQ(whole[1].begin()->first / 1000, 3);
    for (const std::int64_t until : {33, 75, 75 + 33}) {
      const std::string dir = folder / std::to_string(until);
      const auto begun = train(dir, until), rest = train(dir, 1000);
      for (const std::size_t loop : {0u, 1u}) {
        EXPECT_EQ(begun[loop].size() + rest[loop].size(), 75u) << until;
        auto joined = begun[loop];
        joined.insert(rest[loop].begin(), rest[loop].end());
        EXPECT_EQ(joined, whole[loop]) << until;
      }
      EXPECT_TRUE(torch::equal(trained, expected)) << until;
    }
    const auto nothing = train(folder / "whole", 1000);
    EXPECT_TRUE(nothing[0].empty() && nothing[1].empty()) << "all of it was trained before";
  });
}

// A loop for each epoch, from the one that was saved: as docs/library.md shows it.
TEST(Share, EpochByEpochARunShufflesAnewAndGoesOnWhereItWas) {
  constexpr std::int64_t kEpochs = 4, kSize = 25;
  for (const char* strategy : {"allreduce", "lasgd"}) {
    const test::TemporaryFolder folder;
    test::on_workers(2, [&](World& world) {
      // What this worker saw of each epoch, in its order. Ends after `until` samples.
      const auto train = [&](const std::string& dir, std::int64_t until) {
        auto net = fresh_net();
        auto run = distribute(world, *net, sgd(0.01), StrategySpec(strategy));
        const Resumed resumed = run.resume(dir);
        std::vector<Seen> epochs(kEpochs);
        for (auto epoch = resumed.number("epoch", 0); epoch < kEpochs; ++epoch) {
          for (auto& batch : run.share(kSize, {.batch = 3, .first_epoch = epoch})) {
            note(epochs[static_cast<std::size_t>(epoch)], batch);
            EXPECT_EQ(batch.epoch, epoch);
            backward_of_ones(net, batch.size);
            run.step();
            if (run.samples() >= until) break;
          }
          const bool whole = run.samples() == (epoch + 1) * kSize;
          run.save_checkpoint(dir, {{"epoch", std::to_string(epoch + (whole ? 1 : 0))}},
                              {.wait = true});
          if (run.samples() >= until) break;
        }
        return epochs;
      };
      const bool lockstep = std::string(strategy) == "allreduce";
      const auto whole = train(folder / "whole", 1000);
      for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
        EXPECT_EQ(std::ssize(counted(world, whole[epoch])), kSize);
        for (std::size_t other = 0; other < epoch; ++other) {
          Seen one = whole[epoch], two = whole[other];
          for (Seen* each : {&one, &two})
            for (std::int64_t& sample : *each) sample %= 1000;
          // At its own pace a worker on a busy machine may find that the other has done it all.
          const bool saw_none = !lockstep && one.empty() && two.empty();
          EXPECT_TRUE(saw_none || one != two) << "epochs " << other << " and " << epoch;
          EXPECT_GE(world.sum({one != two ? 1.0 : 0.0}).front(), lockstep ? 2 : 1);
        }
      }
      for (const std::int64_t until : {2 * kSize, 2 * kSize + 12}) {
        if (until % kSize != 0 && !lockstep) continue;  // where each breaks is its own
        const std::string dir = folder / std::to_string(until);
        auto joined = train(dir, until);
        const auto rest = train(dir, 1000);
        for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
          joined[epoch].insert(joined[epoch].end(), rest[epoch].begin(), rest[epoch].end());
          if (lockstep) {
            EXPECT_EQ(joined[epoch], whole[epoch]) << until;
          }
          EXPECT_EQ(counted(world, joined[epoch]), counted(world, whole[epoch])) << until;
        }
      }
    });
  }
}

// Loops that do not say where they begin go through the same epochs as one that does all.
TEST(Share, LoopsOfOneEpochHaveTheOrderOfOneLoopOfMany) {
  test::on_workers(1, [](World& world) {
    const auto train = [&](const std::vector<std::int64_t>& loops) {
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01));
      Seen seen;
      for (const std::int64_t epochs : loops)
        for (auto& batch : run.share(25, {.batch = 4, .epochs = epochs})) {
          note(seen, batch);
          backward_of_ones(net, batch.size);
          run.step();
        }
      return seen;
    };
    EXPECT_EQ(train({1, 1, 1}), train({3}));
    EXPECT_EQ(train({1, 2}), train({3}));
  });
}

TEST(Share, AResumedRunSaysThatItPassesOverALoop) {
  const test::TemporaryFolder folder;
  test::on_workers(2, [&](World& world) {
    const auto train = [&](bool own_first) {
      auto net = fresh_net();
      auto run = distribute(world, *net, sgd(0.01));
      run.resume(folder / "c");
      if (own_first) {
        backward_of_ones(net, 1);
        run.step(1);
      }
      int steps = 0;
      for (auto& batch : run.share(16, {.batch = 4})) {
        ++steps;
        backward_of_ones(net, batch.size);
        run.step(batch.size);
      }
      if (run.samples() == 16) run.save_checkpoint(folder / "c", {}, {.wait = true});
      return steps;
    };
    EXPECT_EQ(train(false), 2);
    testing::internal::CaptureStderr();
    EXPECT_EQ(train(false), 0);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("passed over") != std::string::npos, world.rank() == 0) << said;
    EXPECT_EQ(train(true), 2) << "who has made a step by itself is not resumed any more";
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
    EXPECT_TRUE(test::contains(why(20 + world.rank(), {}),
                               {"run.share() of 20 samples", "run.share() of 21"}));
    EXPECT_TRUE(test::contains(why(20, {.batch = 0}), {"batch 0"}));
    EXPECT_TRUE(test::contains(why(20, {.first_epoch = -1}), {"first_epoch -1"}));
    EXPECT_TRUE(test::contains(why(20, {.first_epoch = world.rank()}), {"from epoch 1"}));
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

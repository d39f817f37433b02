// run.every() and run.save_every(): what all workers do together at marks in samples, under every
// strategy; and what workers learn that do not come to the same call.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "keep/checkpoint_files.h"
#include "on_workers.h"
#include "resuming_job.h"
#include "runtime/world_impl.h"
#include "skein/torch.h"
#include "strategy/registry.h"
#include "test_net.h"
#include "torch/distributed_impl.h"

namespace skein::marks_test {
namespace {

using std::chrono::milliseconds;
using test::as_workers;
using test::on_workers;

constexpr std::int64_t kInputs = 5, kBatch = 4;

// A worker with samples of its own; a higher rank is slower.
struct Job {
  Job(World& world, const StrategySpec& strategy) : world(world) {
    torch::manual_seed(3);
    net = torch::nn::Sequential(torch::nn::Linear(kInputs, 4), torch::nn::BatchNorm1d(4),
                                torch::nn::Linear(4, 1));
    run.emplace(distribute(world, *net, sgd(0.01).momentum(0.5), strategy));
    torch::manual_seed(static_cast<std::uint64_t>(world.rank()) + 11);
  }
  void step() {
    std::this_thread::sleep_for(milliseconds(world.rank()));
    const auto x = torch::randn({kBatch, kInputs});
    torch::nn::functional::mse_loss(net->forward(x), x.sum(1, true)).backward();
    run->step(kBatch);
  }
  void train_to(std::int64_t samples) {
    while (!run->done(samples)) step();
  }

  World& world;
  torch::nn::Sequential net{nullptr};
  std::optional<Distributed> run;
};

// Each multiple of `every` between the two is passed by one of the calls, and no call is between
// two of them.
void expect_marks(const std::vector<std::int64_t>& seen, std::int64_t every, std::int64_t from,
                  std::int64_t to) {
  ASSERT_FALSE(seen.empty());
  std::int64_t before = from;
  for (const std::int64_t samples : seen) {
    EXPECT_GT(samples / every, before / every) << samples << " after " << before;
    before = samples;
  }
  EXPECT_EQ(before / every, to / every) << "the last mark";
}

class Marks : public testing::TestWithParam<std::string> {};

TEST_P(Marks, AreSeenToTogetherAndSavesAreResumed) {
  const StrategySpec strategy(GetParam());
  for (const int size : {2, 3}) {
    SCOPED_TRACE(size);
    const test::TemporaryFolder folder;
    for (const bool resumes : {false, true}) {
      on_workers(size, [&](World& world) {
        Job job(world, strategy);
        Distributed& run = *job.run;
        std::vector<std::int64_t> seen;
        std::int64_t saved = -1;
        run.every(40, [&] {
          seen.push_back(run.samples());
          for (const auto& theirs : world.gather_integers({run.samples(), std::ssize(seen)}))
            EXPECT_EQ(theirs, (std::vector<std::int64_t>{run.samples(), std::ssize(seen)}));
          EXPECT_TRUE(test::same_on_all(world, test::flat_parameters(*job.net)));
          bool trains = true;
          run.evaluate([&] { trains = job.net->is_training(); });
          EXPECT_FALSE(trains);
          EXPECT_THROW(run.step(0), ConfigError);
        });
        run.save_every(80, folder / "c", [&] {
          saved = run.samples();
          return Values{{"seen", std::to_string(seen.size())}};
        });
        const Resumed resumed = run.resume(folder / "c");
        EXPECT_EQ(bool(resumed), resumes);
        // The first run may have gone far beyond its goal: a round of abs has what all have made.
        const std::int64_t begun = run.samples(), total = begun + 300;
        EXPECT_EQ(begun > 0, resumes);
        job.train_to(total);
        run.flush();
        expect_marks(seen, 40, begun, run.samples());
        if (GetParam() == "allreduce" || GetParam() == "dear") {
          const std::int64_t step = size * kBatch;
          for (const std::int64_t samples : seen) EXPECT_LT(samples % 40, step);
        }
        EXPECT_GE(saved, total / 80 * 80);
        run.wait_for_checkpoint();
        EXPECT_TRUE(inspect(folder / ("c/" + std::to_string(saved))).whole());
      });
    }
  }
}

// Whoever is out of batches, and in flush(), is at all marks that the others come to.
TEST_P(Marks, AreSeenToByWorkersInFlush) {
  as_workers(3, [](World world) {
    Job job(world, StrategySpec(GetParam()));
    std::vector<std::int64_t> seen;
    job.run->every(20, [&] {
      seen.push_back(job.run->samples());
      EXPECT_EQ(world.sum_integers({1}).front(), 3);
    });
    for (int step = 0; step < 4 + 5 * world.rank(); ++step) job.step();
    job.run->flush();
    expect_marks(seen, 20, 0, job.run->samples());
    EXPECT_EQ(job.run->samples(), (4 + 9 + 14) * kBatch);
    EXPECT_EQ(world.max_integers({std::ssize(seen)}), world.min_integers({std::ssize(seen)}));
  });
}

// By a number of steps, which is not the same on all workers.
TEST_P(Marks, ACallThatNotAllMakeIsNamedOnAllWithWhatToDo) {
  const test::TemporaryFolder folder;
  as_workers(2, [&](World world) {
    Job job(world, StrategySpec(GetParam()));
    std::string why;
    try {
      for (int k = 1; k <= (world.rank() == 0 ? 10 : 7); ++k) {
        job.step();
        if (k % 5 == 0) job.run->save_checkpoint(folder / "c");
      }
      job.run->save(folder / "m.safetensors");
    } catch (const ConfigError& error) {
      why = error.what();
    }
    EXPECT_TRUE(test::contains(
        why, {"rank 0 called run.save_checkpoint(), rank 1 called run.save()", "run.save_every()"}))
        << why;
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, Marks, testing::ValuesIn(strategy_names()),
                         [](const auto& info) { return info.param; });

// Its last step came to a mark, and then it leaves: the others need it no less than after any other
// step.
TEST_P(Marks, WaitForTheOthersAtTheEndAfterALastStepWithAMark) {
  as_workers(3, [](World world) {
    int seen = 0, more = 6;
    Job job(world, StrategySpec(GetParam()));
    job.run->every(40, [&] { ++seen; });
    while (seen == 0) job.step();
    if (world.rank() == 1) return;
    for (; more > 0; --more) job.step();
    job.run->flush();
    EXPECT_GT(job.run->samples(), 40);
  });
}

// Workers that evaluate after epochs of their own, of different lengths, where others are at marks.
TEST_P(Marks, LetWorkersEvaluateBetweenThem) {
  as_workers(3, [](World world) {
    world.impl().set_patience(std::chrono::seconds(20));
    int seen = 0;
    Job job(world, StrategySpec(GetParam()));
    job.run->every(16, [&] { ++seen; });
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (int step = 0; step < 2 + 3 * world.rank(); ++step) job.step();
      job.run->evaluate([&] { EXPECT_EQ(world.sum_integers({1}).front(), 3); });
    }
    EXPECT_GT(seen, 2);
    EXPECT_EQ(world.present(), std::vector<bool>(3, true));
  });
}

TEST(EveryMark, LeavesTheBitsOfTrainingInLockstep) {
  for (const char* strategy : {"allreduce", "dear"})
    on_workers(2, [&](World& world) {
      std::vector<torch::Tensor> models;
      for (const bool marks : {false, true}) {
        Job job(world, StrategySpec(strategy));
        if (marks) job.run->every(24, [&] { job.run->evaluate([] {}); });
        job.train_to(200);
        job.run->flush();
        models.push_back(test::flat_parameters(*job.net));
      }
      EXPECT_TRUE(torch::equal(models[0], models[1]));
    });
}

TEST(EveryMark, RefusesWhatCannotBeOnAllWorkers) {
  on_workers(2, [](World& world) {
    Job job(world, allreduce());
    const auto why = [&](std::int64_t samples, std::function<void()> body) -> std::string {
      try {
        job.run->every(samples, std::move(body));
      } catch (const ConfigError& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_TRUE(test::contains(why(0, [] {}), {"every(0): expected 1 sample or more"}));
    EXPECT_TRUE(test::contains(why(5, nullptr), {"every(5): expected a function"}));
    EXPECT_TRUE(test::contains(test::message_of<ConfigError>([&] {
                                 job.run->save_every(5, "nowhere", nullptr, {.keep = 0});
                               }),
                               {"save_every(): keep = 0; expected at least 1"}));
    EXPECT_TRUE(test::contains(
        test::message_of<ConfigError>([&] { job.run->save_every(7 + world.rank(), "nowhere"); }),
        {"rank 0 called run.save_every(7), rank 1 called run.save_every(8)"}));
    EXPECT_TRUE(test::contains(why(5 + world.rank(), [] {}),
                               {"rank 0 called run.every(5), rank 1 called run.every(6)"}));
    job.train_to(100);
    job.run->flush();
  });
}

TEST(EveryMark, BringsItsExceptionOutOfStep) {
  on_workers(2, [](World& world) {
    Job job(world, allreduce());
    job.run->every(16, [] { throw std::logic_error("a bad figure"); });
    job.step();
    EXPECT_THROW(job.step(), std::logic_error);
    for (int k = 0; k < 1; ++k) job.step();
    EXPECT_EQ(job.run->samples(), 24);
  });
}

// One worker calls the world where the other makes a step for which it needs the first.
std::string why_without_the_other(World& world, bool calls, milliseconds patience) {
  world.barrier();  // however long it took all to come
  world.impl().set_patience(patience);
  Job job(world, StrategySpec("local").set("period", "1"));
  try {
    if (calls)
      world.sum({1});
    else
      for (int k = 0; k < 10; ++k) job.step();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

TEST(MissedCalls, NameTheCallAndWhatTheOtherIsIn) {
  as_workers(2, [](World world) {
    const bool calls = world.rank() == 0;
    const std::string why =
        why_without_the_other(world, calls, milliseconds(calls ? 6000 : 120'000));
    if (calls) {
      EXPECT_TRUE(test::contains(why, {"rank 1 has not come to world.sum() of 1 value, which rank "
                                       "0 made; rank 1 is in run.step(); under local"}))
          << why;
    }
  });
}

TEST(MissedCalls, AreNamedInTheStepThatWaitsForThem) {
  as_workers(2, [](World world) {
    const bool calls = world.rank() == 0;
    const std::string why =
        why_without_the_other(world, calls, milliseconds(calls ? 120'000 : 6000));
    if (!calls) {
      EXPECT_TRUE(test::contains(why, {"run.step(): ", "rank 0",
                                       "(rank 0 is in world.sum() of 1 "
                                       "value); under local"}))
          << why;
    }
  });
}

}  // namespace
}  // namespace skein::marks_test

// Strategies on real ranks against a serial reference, without torch.
#include "strategy/strategy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "conformance/harness.h"
#include "conformance/whole_state.h"
#include "core/rng.h"
#include "kernels/kernels.h"
#include "optimize/clip.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

const std::vector<Arena::Parameter> kParameters{{"a", 300000}, {"b", 7}, {"c", 20000}, {"d", 1}};
constexpr double kRate = 0.1, kMomentum = 0.9;

// A gradient that depends on rank and step only.
void set_gradient(const Arena& arena, Span gradients, int rank, int step) {
  for (const Slot& slot : arena.slots()) {
    Rng rng(static_cast<std::uint64_t>(1000 * step + 10 * rank) + slot.range.offset);
    for (float& value : floats_of(gradients.at(slot.range)))
      value = static_cast<float>(rng.uniform(-1, 1));
  }
}

// What one process with the whole batch would do.
class Reference {
 public:
  explicit Reference(const std::vector<Arena::Parameter>& parameters = kParameters)
      : arena(parameters, allocate_on_heap), optimizer(arena.size(), {kMomentum, 0, false}) {}

  void step(const std::vector<std::int64_t>& samples, int number, double clip) {
    const auto total =
        static_cast<double>(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}));
    const auto memory = allocate_on_heap(arena.size());
    fill(arena.gradients(), 0);
    for (std::size_t r = 0; r < samples.size(); ++r) {
      fill(memory->span(), 0);
      if (samples[r] > 0) set_gradient(arena, memory->span(), static_cast<int>(r), number);
      axpy(arena.gradients(), static_cast<float>(static_cast<double>(samples[r]) / total),
           memory->span());
    }
    UpdateContext context{.learning_rate = kRate, .step = number};
    if (clip > 0) context.gradient_scale = clip_scale(squared_norm(arena.gradients()), clip);
    optimizer.update({0, arena.size()}, arena.parameters(), arena.gradients(), context);
  }

  Arena arena;
  Sgd optimizer;
};

// One rank of a run of `strategy`.
struct Rank : toy::Trainer {
  Rank(Fabric& fabric, const std::string& name, const StrategyOptions& options, double clip = 0,
       const std::vector<Arena::Parameter>& parameters = kParameters)
      : Trainer(fabric, parameters, name, options,
                {.rate = kRate, .momentum = kMomentum, .clip = clip}) {}

  // Reports the buckets in an order of this rank's own.
  Task<> step(std::int64_t expected, std::int64_t samples, int number) {
    driver.expect(expected);
    co_await read();
    co_await driver.begin();
    if (samples > 0 || discards) set_gradient(arena, arena.gradients(), worker.rank(), number);
    if (poisoned) floats_of(arena.gradients())[3] = NAN;
    Rng rng(static_cast<std::uint64_t>(number * 100 + worker.rank()));
    const auto order = rng.permutation(static_cast<std::uint32_t>(buckets()));
    for (const std::uint32_t bucket : order)
      if (samples > 0 || discards) driver.bucket_ready(static_cast<int>(bucket));
    co_await driver.end(samples);
  }

  // Computes a gradient, which is not a number, and throws it away.
  Task<> discard(std::int64_t expected, int number) {
    poisoned = discards = true;
    co_await step(expected, 0, number);
    poisoned = discards = false;
  }

  bool poisoned = false;  // the next gradient is not a number
  bool discards = false;  // there is one though the step has no samples
};

// The relative tolerance allows for another order of summation, nothing more.
void compare(Span got, Span want) {
  const auto all_got = floats_of(got);
  const auto all_want = floats_of(want);
  for (std::size_t i = 0; i < got.count; ++i)
    if (!(std::abs(all_got[i] - all_want[i]) <= 2e-6F * std::max(1.0F, std::abs(all_want[i]))))
      throw Error("element " + std::to_string(i) + " is " + std::to_string(all_got[i]) +
                  ", expected " + std::to_string(all_want[i]));
}

Task<> compare_with_rank_0(Fabric& fabric, Span mine) {
  const auto memory = allocate_on_heap(mine.count);
  std::ranges::copy(floats_of(mine), floats_of(memory->span()).begin());
  co_await fabric.broadcast(7, memory->span(), 0, fabric.loop().now() + 120s);
  const auto all_memory = floats_of(memory->span());
  const auto all_mine = floats_of(mine);
  for (std::size_t i = 0; i < mine.count; ++i)
    if (all_memory[i] != all_mine[i]) throw Error("replicas differ at " + std::to_string(i));
}

class Strategies : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  const std::string& strategy() const { return std::get<2>(GetParam()); }
  void run_all_ok(const Body& body) {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }

  // Five steps whose batch sizes on rank r are given by `samples(step, rank)`.
  void equals_reference(const StrategyOptions& options, double clip, bool announced,
                        const std::function<std::int64_t(int, int)>& samples) {
    run_all_ok([=, name = strategy()](Fabric& fabric) -> Task<> {
      Rank rank(fabric, name, options, clip);
      Reference reference;
      std::int64_t last = kUnknown, all = 0;
      for (int step = 1; step <= 5; ++step) {
        std::vector<std::int64_t> batch;
        for (int r = 0; r < fabric.size(); ++r) batch.push_back(samples(step, r));
        const std::int64_t own = batch[static_cast<std::size_t>(fabric.rank())];
        co_await rank.step(announced ? own : last, own, step);
        co_await rank.driver.flush();
        reference.step(batch, step, clip);
        compare(rank.arena.parameters(), reference.arena.parameters());
        co_await compare_with_rank_0(fabric, rank.arena.parameters());
        last = own;
        all += std::accumulate(batch.begin(), batch.end(), std::int64_t{0});
        // What was not announced is counted one step late.
        if ((announced || step < 5) && rank.worker.progress.samples != all)
          throw Error("wrong global samples");
      }
    });
  }
};

// What a user does to the gradient before an update, on some fixed schedule.
Task<> clip_to_one(AveragedGradients& gradients) {
  gradients.clip(1.0);
  co_return;
}
Task<> skip_what_is_no_number(AveragedGradients& gradients) {
  if (!std::isfinite(gradients.norm())) gradients.skip();
  co_return;
}

// With the bits of the optimizer's own clipping.
TEST_P(Strategies, TheUserMayClipTheAveragedGradient) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank clips(fabric, name, {}, 1.0);
    for (int step = 1; step <= 3; ++step) co_await clips.step(5, 5, step);
    co_await clips.driver.flush();
    Rank rank(fabric, name, {});
    rank.worker.before_update = clip_to_one;
    for (int step = 1; step <= 3; ++step) co_await rank.step(5, 5, step);
    co_await rank.driver.flush();
    const Span got = rank.arena.parameters(), want = clips.arena.parameters();
    const auto all_got = floats_of(got);
    const auto all_want = floats_of(want);
    for (std::size_t i = 0; i < got.count; ++i)
      if (all_got[i] != all_want[i]) throw Error("differs at " + std::to_string(i));
    if (co_await value_of(fabric.loop(), squared_norm(got)) == 0)
      throw Error("nothing was trained");
  });
}

// Rank 0's gradient of step 2 is not a number: on no worker does the step leave anything behind.
TEST_P(Strategies, TheUserMaySkipAStep) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"fusion", "none"}});
    rank.worker.before_update = skip_what_is_no_number;
    Reference reference;
    const std::vector<std::int64_t> batch(static_cast<std::size_t>(fabric.size()), 5);
    for (int step = 1; step <= 3; ++step) {
      rank.poisoned = step == 2 && fabric.rank() == 0;
      co_await rank.step(5, 5, step);
      if (step != 2) reference.step(batch, step, 0);
    }
    co_await rank.driver.flush();
    compare(rank.arena.parameters(), reference.arena.parameters());
    if (co_await value_of(fabric.loop(), squared_norm(rank.arena.gradients())) != 0)
      throw Error("gradients are left");
    if (rank.worker.progress.steps != 2) throw Error("counts updates that were not made");
    if (rank.worker.progress.samples != 15 * fabric.size()) throw Error("lost samples");
  });
}

Task<> skip(AveragedGradients& gradients) {
  gradients.skip();
  co_return;
}

// What takes a peer to be seen.
class StrategiesOfPeers : public Strategies {};

// What only a strategy with a sharded update can get wrong.
class ShardedStrategies : public Strategies {};

TEST_P(Strategies, EqualsOneProcessWithTheWholeBatch) {
  for (const char* fusion : {"auto", "none", "64KB"})
    equals_reference({{"fusion", fusion}}, 0, true, [](int, int) { return 16; });
}

TEST_P(Strategies, WeighsBySamples) {
  equals_reference({}, 0, true, [](int step, int rank) { return 3 + step + 5 * rank; });
}

TEST_P(Strategies, TakesRanksWithoutSamples) {
  equals_reference({}, 0, true, [](int step, int rank) {
    return (rank + step) % 2 == 0 ? 4 : rank == 0 ? 1 : 0;
  });
}

TEST_P(Strategies, ClipsByTheGlobalNorm) {
  equals_reference({{"fusion", "64KB"}}, 1.5, true, [](int, int rank) { return 8 + rank; });
}

TEST_P(Strategies, NeedsNoAnnouncementWhileSharesStayInProportion) {
  equals_reference({}, 0, false, [](int step, int) { return step == 5 ? 6 : 12; });
}

TEST_P(Strategies, WithoutOverlapGivesTheSame) {
  equals_reference({{"overlap", "false"}}, 0, true,
                   [](int step, int rank) { return 1 + step * rank; });
}

// Every step has another number of samples, in other proportions, and nobody says so before.
TEST_P(Strategies, WithoutOverlapNeedsNoAnnouncement) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"overlap", "false"}});
    Reference reference;
    std::int64_t last = kUnknown, all = 0;
    for (int step = 1; step <= 6; ++step) {
      std::vector<std::int64_t> batch;
      for (int r = 0; r < fabric.size(); ++r)
        batch.push_back(step == 3 ? (r == 0 ? 1 : 0) : 2 + step * (r + 1) % 5);
      const std::int64_t own = batch[static_cast<std::size_t>(fabric.rank())];
      co_await rank.step(last, own, step);
      reference.step(batch, step, 0);
      all += std::accumulate(batch.begin(), batch.end(), std::int64_t{0});
      if (rank.worker.progress.samples != all) throw Error("wrong global samples");
      last = own;
    }
    co_await rank.driver.flush();
    compare(rank.arena.parameters(), reference.arena.parameters());
    co_await compare_with_rank_0(fabric, rank.arena.parameters());
  });
}

Task<> refuse_to_be_asked(AveragedGradients&) { throw Error("before_update() was called"); }

// Whether it is announced or, where there was no backward, not; with momentum, and clipped.
TEST_P(Strategies, AStepInWhichNobodyHasSamplesIsNoUpdate) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"fusion", "64KB"}}, 1.5);
    Reference reference;
    const std::vector<std::int64_t> batch(static_cast<std::size_t>(fabric.size()), 4);
    for (int step = 1; step <= 2; ++step) {
      co_await rank.step(4, 4, step);
      reference.step(batch, step, 1.5);
    }
    co_await rank.driver.flush();
    const auto parameters = floats_of(rank.arena.parameters());
    const std::vector<float> before(parameters.begin(), parameters.end());
    rank.worker.before_update = refuse_to_be_asked;
    for (int step = 3; step <= 5; ++step) co_await rank.discard(step == 3 ? kUnknown : 0, step);
    co_await rank.step(0, 0, 6);
    co_await rank.driver.flush();
    if (!std::equal(parameters.begin(), parameters.end(), before.begin()))
      throw Error("the model has moved");
    if (rank.worker.progress.steps != 2 || rank.worker.progress.samples != 8 * fabric.size())
      throw Error("counts a step");
    rank.worker.before_update = nullptr;
    co_await rank.step(4, 4, 3);
    reference.step(batch, 3, 1.5);
    co_await rank.driver.flush();
    compare(rank.arena.parameters(), reference.arena.parameters());  // the momentum, too
    co_await compare_with_rank_0(fabric, rank.arena.parameters());
  });
}

// What the last rank throws away, which is not a number, is not in the sum.
TEST_P(Strategies, ADiscardedBatchLeavesNothing) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"fusion", "64KB"}});
    Reference reference;
    const int last = fabric.size() - 1;
    int updates = 0;
    for (int step = 1; step <= 4; ++step) {
      const bool discards = step % 2 == 0;
      std::vector<std::int64_t> batch(static_cast<std::size_t>(fabric.size()), 4);
      if (discards) batch[static_cast<std::size_t>(last)] = 0;
      const bool update = fabric.size() > 1 || !discards;
      updates += update ? 1 : 0;
      if (discards && fabric.rank() == last)
        co_await rank.discard(0, updates);
      else
        co_await rank.step(4, 4, updates);
      if (update) reference.step(batch, updates, 0);
    }
    co_await rank.driver.flush();
    compare(rank.arena.parameters(), reference.arena.parameters());
    co_await compare_with_rank_0(fabric, rank.arena.parameters());
    if (co_await value_of(fabric.loop(), squared_norm(rank.arena.gradients())) != 0)
      throw Error("gradients are left");
  });
}

// Gradients that were announced are in the update when all turn out to be discarded.
TEST_P(StrategiesOfPeers, RefusesABatchThatAllDiscardUnannounced) {
  const auto outcomes =
      std::get<0>(GetParam()).run(size(), [name = strategy()](Fabric& fabric) -> Task<> {
        Rank rank(fabric, name, {});
        co_await rank.step(8, 8, 1);
        rank.discards = true;
        co_await rank.step(8, 0, 2);
        co_await rank.driver.flush();
      });
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 1 was expected to compute 8 samples and computed 0"),
              std::string::npos)
        << outcome.error << " signal " << outcome.signal;
}

// One rank skips the second step and the others do not: all of them learn of it.
TEST_P(StrategiesOfPeers, RefusesUsersWhoDecideDifferently) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {});
    rank.worker.before_update = clip_to_one;
    co_await rank.step(5, 5, 1);
    if (fabric.rank() == 1) rank.worker.before_update = skip;
    co_await rank.step(5, 5, 2);
    bool refused = false;
    try {
      co_await rank.driver.flush();
    } catch (const ConfigError&) {
      refused = true;
    }
    if (!refused) throw Error("nobody noticed");
  });
}

TEST_P(StrategiesOfPeers, RefusesSharesThatDifferFromThoseAnnounced) {
  const auto outcomes =
      std::get<0>(GetParam()).run(size(), [name = strategy()](Fabric& fabric) -> Task<> {
        Rank rank(fabric, name, {});
        co_await rank.step(8, fabric.rank() == 1 ? 5 : 8, 1);
        co_await rank.step(8, 8, 2);
      });
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 1 was expected to compute 8 samples and computed 5"),
              std::string::npos)
        << outcome.error << " signal " << outcome.signal;
}

// A forgotten expect() in the last step of all is found by flush(), and the rank that forgot it is
// named, whichever it is; those that kept their word are not.
TEST_P(StrategiesOfPeers, FlushChecksTheLastStep) {
  for (const int culprit : {0, 1}) {
    const auto outcomes =
        std::get<0>(GetParam()).run(size(), [culprit, name = strategy()](Fabric& fabric) -> Task<> {
          Rank rank(fabric, name, {});
          co_await rank.step(8, 8, 1);
          co_await rank.step(8, fabric.rank() == culprit ? 3 : 8, 2);
          co_await rank.driver.flush();
        });
    for (const Outcome& outcome : outcomes) {
      EXPECT_NE(
          outcome.error.find("step 2: rank " + std::to_string(culprit) +
                             " was expected to compute 8 samples and computed 3: the average"),
          std::string::npos)
          << outcome.error << " signal " << outcome.signal;
      EXPECT_FALSE(outcome.io_error);
    }
  }
}

// Shares that all came out half as large were weighted rightly; flush() counts them.
TEST_P(StrategiesOfPeers, FlushCountsTheLastStepAsItWasComputed) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {});
    co_await rank.step(8, 8, 1);
    co_await rank.step(8, 4, 2);
    co_await rank.driver.flush();
    if (rank.worker.progress.samples != 12 * fabric.size()) throw Error("wrong global samples");
    co_await rank.step(4, 4, 3);
    co_await rank.driver.flush();
    if (rank.worker.progress.samples != 16 * fabric.size()) throw Error("counted twice");
  });
}

// Gradients that were announced to be none have weight 0: the step would be lost.
TEST_P(Strategies, RefusesSamplesWhereNoneWereAnnounced) {
  const auto outcomes =
      std::get<0>(GetParam()).run(size(), [name = strategy()](Fabric& fabric) -> Task<> {
        Rank rank(fabric, name, {});
        co_await rank.step(8, 8, 1);
        co_await rank.step(0, 5, 2);
        co_await rank.driver.flush();
      });
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 0 was expected to compute 0 samples and computed 5"),
              std::string::npos)
        << outcome.error;
}

// Whoever has no steps left waits in flush(), which counts as steps without samples.
TEST_P(StrategiesOfPeers, WaitingInFlushIsAStepWithoutSamples) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    const StrategyOptions options{{"fusion", "64KB"}};
    const int last = fabric.size() - 1;
    Rank waits(fabric, name, options, 1.5);
    for (int step = 1; step <= 6; ++step)
      if (step <= 2 || fabric.rank() != last) co_await waits.step(4, 4, step);
    co_await waits.driver.flush();
    Rank steps(fabric, name, options, 1.5);
    for (int step = 1; step <= 6; ++step) {
      const std::int64_t samples = step <= 2 || fabric.rank() != last ? 4 : 0;
      co_await steps.step(samples, samples, step);
    }
    co_await steps.driver.flush();
    if (!std::ranges::equal(floats_of(waits.arena.parameters()),
                            floats_of(steps.arena.parameters())))
      throw Error("not the same bits");
    if (waits.worker.progress.samples != steps.worker.progress.samples ||
        waits.worker.progress.steps != 6)
      throw Error("not the same progress");
  });
}

TEST_P(Strategies, StopsEverywhereAfterTheSameStep) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {});
    int steps = 0;
    for (; !rank.worker.all_stop && steps < 10; ++steps) {
      rank.worker.wants_to_stop = fabric.rank() == fabric.size() - 1 && steps == 3;
      co_await rank.step(4, 4, steps + 1);
    }
    if (steps != 4) throw Error("stopped after " + std::to_string(steps));
  });
}

TEST_P(Strategies, BalanceGivesSharesInProportionToSpeed) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"balance", "true"}});
    const double speed = fabric.rank() == 0 ? 100 : 300;
    const std::int64_t batch = 64;
    for (int step = 1; step <= 3; ++step) {
      rank.worker.meters.seconds_per_sample = 1 / speed;
      const auto shares = rank.strategy->split(batch);
      if (std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) != batch)
        throw Error("samples were lost");
      const std::int64_t own = shares[static_cast<std::size_t>(fabric.rank())];
      if (step > 1 && fabric.size() == 2 && own != (fabric.rank() == 0 ? 16 : 48))
        throw Error("share " + std::to_string(own));
      co_await rank.step(own, own, step);
    }
  });
}

// A driver asks for the shares of what is left when nothing is.
TEST_P(Strategies, BalanceGivesNobodyAnythingOfNothing) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"balance", "true"}});
    rank.worker.meters.seconds_per_sample = 0.01;
    co_await rank.step(8, 8, 1);
    const auto shares = rank.strategy->split(0);
    if (shares != std::vector<std::int64_t>(static_cast<std::size_t>(fabric.size()), 0))
      throw Error("not a share for each");
  });
}

// Sharding moves work, never bits: whatever the batches, with clipping and without.
TEST_P(ShardedStrategies, HasTheBitsOfAllReduce) {
  for (const double clip : {0.0, 1.5})
    run_all_ok([clip, name = strategy()](Fabric& fabric) -> Task<> {
      const StrategyOptions options{{"fusion", "64KB"}};
      Rank rank(fabric, name, options, clip);
      std::vector<std::vector<float>> models;
      for (int step = 1; step <= 6; ++step) {
        co_await rank.step(4 + fabric.rank() * step, 4 + fabric.rank() * step, step);
        co_await rank.driver.flush();
        models.emplace_back(floats_of(rank.arena.parameters()).begin(),
                            floats_of(rank.arena.parameters()).end());
      }
      Rank plain(fabric, "allreduce", options, clip);
      for (int step = 1; step <= 6; ++step) {
        co_await plain.step(4 + fabric.rank() * step, 4 + fabric.rank() * step, step);
        const Span model = plain.arena.parameters();
        const auto all_model = floats_of(model);
        for (std::size_t i = 0; i < model.count; ++i)
          if (all_model[i] != models[static_cast<std::size_t>(step - 1)][i])
            throw Error("step " + std::to_string(step) + ": bits differ at " + std::to_string(i));
      }
    });
}

// While the tuner changes the plan between steps, momentum moves with it and nobody loses step.
TEST_P(ShardedStrategies, ANewPlanKeepsTheOptimizersState) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const std::vector<Arena::Parameter> parameters(5, {"large", 400000});
    Rank rank(fabric, "dear", {{"fusion_start", "1MiB"}, {"trial_steps", "1"}}, 0, parameters);
    Reference reference(parameters);
    std::set<int> plans;
    for (int step = 1; step <= 15; ++step) {
      co_await rank.step(8, 8, step);
      plans.insert(rank.strategy->plan().count());
      reference.step(std::vector<std::int64_t>(static_cast<std::size_t>(fabric.size()), 8), step,
                     0);
    }
    co_await rank.driver.flush();
    if (plans.size() < 2) throw Error("the plan never changed");
    compare(rank.arena.parameters(), reference.arena.parameters());
    co_await compare_with_rank_0(fabric, rank.arena.parameters());
    WholeState state = co_await whole_state(fabric, *rank.strategy, rank.arena.size());
    auto& momentum = state.at("momentum");
    compare({momentum.data(), momentum.size()}, reference.optimizer.state().at("momentum"));
  });
}

// As a checkpoint needs it, whoever writes it.
TEST_P(Strategies, StreamTheReferencesStateToEachRank) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank rank(fabric, name, {{"fusion", "64KB"}});
    Reference reference;
    for (int step = 1; step <= 3; ++step) {
      co_await rank.step(8, 8, step);
      reference.step(std::vector<std::int64_t>(static_cast<std::size_t>(fabric.size()), 8), step,
                     0);
    }
    WholeState state = co_await whole_state(fabric, *rank.strategy, rank.arena.size());
    auto& momentum = state.at("momentum");
    compare({momentum.data(), momentum.size()}, reference.optimizer.state().at("momentum"));
  });
}

// What a checkpoint's writer is shown, one after the other, is the whole state; nobody else is
// shown anything.
TEST_P(Strategies, StreamTheOptimizersStateInOrderToOneRank) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    const std::vector<Arena::Parameter> parameters{{"a", 1000}, {"b", 7}, {"large", 1500000}};
    Rank rank(fabric, name, {{"fusion", "64KB"}}, 0, parameters);
    Reference reference(parameters);
    for (int step = 1; step <= 2; ++step) {
      co_await rank.step(8, 8, step);
      reference.step(std::vector<std::int64_t>(static_cast<std::size_t>(fabric.size()), 8), step,
                     0);
    }
    co_await rank.driver.flush();
    const int to = fabric.size() - 1;
    std::vector<float> momentum;
    const TakeState take = [&](const std::string& vector, Range range, Span values) {
      if (vector != "momentum" || range.offset != momentum.size() || values.count != range.count)
        throw Error("shown " + vector + " from " + std::to_string(range.offset));
      const auto shown = floats_of(values);
      momentum.insert(momentum.end(), shown.begin(), shown.end());
    };
    co_await rank.strategy->stream_state(to, take);
    if (momentum.size() != (fabric.rank() == to ? rank.arena.size() : 0))
      throw Error("not the whole of it");
    if (fabric.rank() == to)
      compare({momentum.data(), momentum.size()}, reference.optimizer.state().at("momentum"));
    // Training goes on.
    co_await rank.step(8, 8, 3);
    co_await rank.driver.flush();
    co_await compare_with_rank_0(fabric, rank.arena.parameters());
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Strategies,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 4),
                                          testing::Values("allreduce", "dear")),
                         name_of_three);
INSTANTIATE_TEST_SUITE_P(Worlds, StrategiesOfPeers,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 4),
                                          testing::Values("allreduce", "dear")),
                         name_of_three);

INSTANTIATE_TEST_SUITE_P(Nccl, Strategies,
                         testing::Combine(testing::ValuesIn(nccl_worlds()), testing::Values(2),
                                          testing::Values("allreduce", "dear")),
                         name_of_three);

INSTANTIATE_TEST_SUITE_P(Worlds, ShardedStrategies,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 4),
                                          testing::Values("dear")),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

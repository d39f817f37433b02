// gossip and acid on real ranks, without torch: pairing by messages, exchanges while ranks compute,
// and a rank that dies.
#include "strategy/gossip/gossip.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "conformance/harness.h"
#include "optimize/adamw.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kElements = 300000;  // more than a block
constexpr double kRate = 0.01;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// Every rank starts from its own number and has its own constant gradient.
float start_of(int rank) { return static_cast<float>(rank); }
float gradient_of(int rank) { return static_cast<float>(1 + rank); }

struct Rank : toy::Trainer {
  Rank(Fabric& fabric, const std::string& name, const StrategyOptions& options,
       std::unique_ptr<Optimizer> chosen = nullptr, Trace* watched = nullptr,
       std::size_t elements = kElements)
      : Trainer(fabric, {{"a", elements}}, name, options,
                {.rate = kRate, .seed = 5, .optimizer = std::move(chosen)}) {
    time.pass_on_to(watched);
    for (float& x : floats_of(arena.parameters())) x = start_of(fabric.rank());
    background = ScopedJob(fabric.loop().spawn(strategy->background()));
  }

  Task<> step() {
    driver.expect(4);
    co_await worker.loop().sleep_for(2ms);
    co_await driver.begin();
    for (float& g : floats_of(arena.gradients())) g = gradient_of(worker.rank());
    co_await driver.end(4);
    ++steps;
  }

  int steps = 0;
};

// All ranks that live have the bits of the lowest one.
Task<> compare_with(Fabric& fabric, int lowest, int dead, Span mine) {
  constexpr Channel kCheck = 7;
  const Deadline deadline = fabric.loop().now() + 120s;
  if (fabric.rank() == lowest) {
    for (int peer = lowest + 1; peer < fabric.size(); ++peer)
      if (peer != dead) co_await fabric.send(kCheck, peer, mine, deadline);
  } else {
    const auto memory = allocate_on_heap(mine.count);
    co_await fabric.receive(kCheck, lowest, memory->span(), deadline);
    require(std::ranges::equal(floats_of(memory->span()), floats_of(mine)), "replicas differ");
  }
}

class GossipOf : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  const World& world() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
  const std::string& strategy() const { return std::get<2>(GetParam()); }
  void run_all_but(int dead, const Body& body) { expect_ok(world(), size(), body, dead); }
};

// Averaging neither makes nor loses anything: the mean of the models moves by the mean of the
// gradients alone, whatever was on the wire when. The tolerance is that of some hundred roundings;
// with momentum it is x + x̃ that keeps its mean, from which that of x differs a little where the
// two sides of an exchange mix at different times.
// Forty steps and a flush: the mean of all models moves by the gradients and by nothing else.
Task<> keep_the_mean(Fabric& fabric, std::string strategy, int more_than) {
  Rank rank(fabric, strategy, {{"rate", "2"}});
  for (int step = 0; step < 40; ++step) co_await rank.step();
  co_await rank.driver.flush();
  require(rank.worker.progress.steps == 40, "steps");
  double mean = 0;
  for (int r = 0; r < fabric.size(); ++r)
    mean += (start_of(r) - 40 * kRate * static_cast<double>(gradient_of(r))) / fabric.size();
  for (const float x : floats_of(rank.arena.parameters().at({0, kElements})))
    require(std::abs(x - mean) < (strategy == "acid" ? 5e-3 : 1e-4),
            std::to_string(x) + " for " + std::to_string(mean));
  co_await compare_with(fabric, 0, -1, rank.arena.parameters());
  const nlohmann::json figures = rank.strategy->figures();
  require(figures["initiated"].get<int>() + figures["accepted"].get<int>() > more_than,
          figures.dump());
  require(figures["dead"].empty() && figures["connected"].get<bool>(), figures.dump());
}

TEST_P(GossipOf, TheMeanMovesByGradientsAlone) {
  run_all_but(-1, [&](Fabric& fabric) { return keep_the_mean(fabric, strategy(), 10); });
}

// Where nobody averages, each model is known: so is how far they are from their mean when all come
// together. A small model is averaged through one rank, a large one on a ring.
TEST_P(GossipOf, TellsHowFarApartTheModelsWere) {
  for (const std::size_t elements : {std::size_t{128}, kElements})
    run_all_but(-1, [&, elements](Fabric& fabric) -> Task<> {
      Rank rank(fabric, strategy(), {{"rate", "0.001"}, {"schedule", "fixed"}}, nullptr, nullptr,
                elements);
      for (int step = 0; step < 5; ++step) co_await rank.step();
      require(!rank.strategy->step_figures().contains("consensus_distance"), "nobody knows yet");
      co_await rank.driver.flush();
      double mean = 0, squares = 0;
      for (int r = 0; r < fabric.size(); ++r) {
        const double x = start_of(r) - 5 * kRate * static_cast<double>(gradient_of(r));
        mean += x / fabric.size();
        squares += x * x / fabric.size();
      }
      const double expected = static_cast<double>(elements) * (squares - mean * mean);
      const nlohmann::json figures = rank.strategy->figures();
      require(figures["initiated"] == 0 && figures["accepted"] == 0, figures.dump());
      const double told = figures["consensus_distance"];
      require(std::abs(told - expected) < 1e-3 * expected,
              std::to_string(told) + " for " + std::to_string(expected));
      require(rank.strategy->step_figures()["consensus_distance"] == told, "of a step");
    });
}

// Answers take longer than a worker waits for them before it asks another: those that come when it
// has ended its steps begin an averaging still, which the other side applies.
TEST(GossipFarApart, AnAnswerThatComesAfterTheLastStepCounts) {
  for (const int size : {2, 3, 4})
    expect_ok(sim_world("1gbe:latency=1500ms"), size,
              [](Fabric& fabric) { return keep_the_mean(fabric, "gossip", 0); });
}

TEST_P(GossipOf, GoesOnWithoutARankThatDies) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  const int dead = size() - 1;
  run_all_but(dead, [&, dead](Fabric& fabric) -> Task<> {
    Rank rank(fabric, strategy(), {{"topology", "complete"}});
    for (int step = 0; step < 30; ++step) {
      if (fabric.rank() == dead && step == 10) co_await world().die(fabric);
      co_await rank.step();
    }
    co_await rank.driver.flush();
    co_await compare_with(fabric, 0, dead, rank.arena.parameters());
    require(rank.strategy->figures()["dead"] == nlohmann::json::array({dead}), "others are dead");
  });
}

// Samples of all, and a wish to stop, reach everyone through neighbours.
TEST_P(GossipOf, AllLearnOfSamplesAndOfAWishToStop) {
  run_all_but(-1, [&](Fabric& fabric) -> Task<> {
    Rank rank(fabric, strategy(), {});
    while (rank.worker.progress.samples < 4 * 20 * fabric.size()) co_await rank.step();
    rank.worker.wants_to_stop = fabric.rank() == 1;
    while (!rank.worker.all_stop && rank.steps < 10000) co_await rank.step();
    co_await rank.driver.flush();
    require(rank.worker.all_stop, "never stopped");
    co_await compare_with(fabric, 0, -1, rank.arena.parameters());
  });
}

// Each evaluates its own model while the others go on.
TEST_P(GossipOf, SettledItLeavesTheParametersAlone) {
  run_all_but(-1, [&](Fabric& fabric) -> Task<> {
    Rank rank(fabric, strategy(), {{"rate", "2"}});
    for (int round = 0; round < 4; ++round) {
      for (int step = 0; step < 5 + fabric.rank(); ++step) co_await rank.step();
      co_await rank.driver.settle();
      const Span model = rank.arena.parameters();
      const std::vector<float> before(floats_of(model).begin(), floats_of(model).end());
      co_await fabric.loop().sleep_for(20ms);
      require(std::ranges::equal(floats_of(model), before), "the model changed");
    }
    co_await rank.driver.flush();
    co_await compare_with(fabric, 0, -1, rank.arena.parameters());
  });
}

TEST_P(GossipOf, TheOptimizersStateIsAveragedToo) {
  run_all_but(-1, [&](Fabric& fabric) -> Task<> {
    auto adamw =
        std::make_unique<Adamw>((kElements + 15) / 16 * 16, AdamwOptions{}, allocator(fabric));
    Rank rank(fabric, strategy(), {{"momentum", "averaged"}, {"rate", "2"}}, std::move(adamw));
    // Of constant gradients a rank by itself would have a mean of (1 − β1^k) times its own; however
    // the ranks' steps and exchanges fall in time, averages stay below the greatest gradient.
    double apart = 0, most = 0;
    for (int step = 1; step <= 40; ++step) {
      co_await rank.step();
      const double alone = (1 - std::pow(0.9, step)) * double{gradient_of(fabric.rank())};
      const double now = floats_of(rank.optimizer->state().at("exp_avg"))[0];
      apart = std::max(apart, std::abs(now - alone));
      most = std::max(most, now);
      require(now > 0, "an average of positive numbers is " + std::to_string(now));
    }
    require(apart > 0.05, "the state is its own, but for " + std::to_string(apart));
    require(most < gradient_of(fabric.size() - 1),
            "no average is as much as " + std::to_string(most));
    require(floats_of(rank.optimizer->state().at("exp_avg_sq"))[0] >= 0, "a negative square");
    co_await rank.driver.flush();
  });
}

// Goes wrong in the middle of a run, by no fault of a peer.
struct OutOfPaper final : Trace {
  void span(Lane, std::string_view name, Time, Time) override {
    if (name == "averaging" && ++seen == 3) throw Error("out of paper");
  }
  int seen = 0;
};

// Exchanges run by themselves: what ends them must not pass unnoticed.
TEST_P(GossipOf, AnErrorInAJobThatNobodyWaitsForEndsTheRun) {
  const auto outcomes = world().run(size(), [name = strategy()](Fabric& fabric) -> Task<> {
    const bool breaks = fabric.rank() == 0;
    OutOfPaper paper;
    Rank rank(fabric, name, {{"rate", "2"}}, nullptr, breaks ? &paper : nullptr);
    std::string error;
    try {
      for (int step = 0; step < (breaks ? 60 : 12); ++step) {
        co_await rank.step();
        if (rank.background->done()) rank.background->rethrow();
      }
    } catch (const Error& caught) {
      error = caught.what();
    }
    require(error == (breaks ? "out of paper" : ""), "error: " + error);
  });
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.ok) << outcome.error;
}

INSTANTIATE_TEST_SUITE_P(Worlds, GossipOf,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(3, 4),
                                          testing::Values("gossip", "acid")),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

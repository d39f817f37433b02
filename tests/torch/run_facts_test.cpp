// What a run says of itself: totals, traits, shares, the strategy's report; and what one worker
// does for all.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "on_workers.h"
#include "skein/torch.h"
#include "strategy/registry.h"

namespace skein::run_facts_test {
namespace {

using namespace test;

void make_steps(Distributed& run, torch::nn::Linear& net, int steps) {
  for (int step = 0; step < steps; ++step) {
    net->forward(torch::ones({4, 3})).mean().backward();
    run.step(4);
  }
}

TEST(Totals, CountParametersAndWhatWasSent) {
  on_workers(2, [](World& world) {
    torch::nn::Linear net(3, 5);
    auto run = distribute(world, *net, sgd(0.01));
    const std::uint64_t before = run.totals().bytes_sent;
    make_steps(run, net, 3);
    const Totals totals = run.totals();
    EXPECT_EQ(totals.parameters, 20) << "gaps of the arena are none";
    EXPECT_GT(totals.bytes_sent, before);
    EXPECT_GT(totals.waiting.count() + totals.updating.count(), 0);
    EXPECT_EQ(totals.reordered, 0);
  });
}

TEST(Traits, AreThoseOfTheStrategy) {
  on_workers(2, [](World& world) {
    for (const std::string& name : strategy_names()) {
      SCOPED_TRACE(name);
      torch::nn::Linear net(3, 1);
      auto run = distribute(world, *net, sgd(0.01), StrategySpec(name));
      const RunTraits traits = run.traits();
      const bool gossips = name == "gossip" || name == "acid";
      EXPECT_EQ(traits.survives_losses, gossips);
      EXPECT_EQ(traits.lockstep, name == "allreduce" || name == "dear");
      EXPECT_EQ(traits.equal_replicas, traits.lockstep || name == "abs");
      make_steps(run, net, 2);
      EXPECT_TRUE(nlohmann::json::parse(run.strategy_report().figures).is_object());
      if (traits.lockstep) {
        const auto shares = run.shares(7);
        EXPECT_EQ(shares.size(), 2u);
        EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}), 7);
      } else {
        EXPECT_THROW(run.shares(7), ConfigError);
      }
      run.flush();
    }
  });
}

TEST(Once, RunsOnTheLeaderAndItsErrorIsEverybodys) {
  on_workers(3, [](World& world) {
    int ran = 0;
    EXPECT_EQ(world.leader(), 0);
    world.once([&] { ++ran; });
    EXPECT_EQ(ran, world.rank() == 0 ? 1 : 0);
    EXPECT_EQ(world.sum_integers({ran}).front(), 1) << "it had run when the call returned";
    EXPECT_THROW(world.once([] { throw ConfigError("no"); }, "trying"), ConfigError);
    world.barrier();
  });
}

}  // namespace
}  // namespace skein::run_facts_test

// Two models in one world, side by side and one after the other: neither hears of the other.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "conformance/harness.h"
#include "core/packed.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kBatch = 4;
constexpr int kSteps = 40;  // enough for every worker of a gossip to find a partner
constexpr double kRate = 0.01;
constexpr Channel kCheck = 7;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// Every rank has a constant gradient, which differs between models by a factor of a hundred.
struct Model : toy::Trainer {
  Model(Fabric& fabric, const std::string& name, float its_scale)
      : Trainer(fabric, {{"a", 5000}}, name, {}, {.rate = kRate, .seed = 5}), scale(its_scale) {
    background = ScopedJob(fabric.loop().spawn(strategy->background()));
  }

  float gradient() const { return scale * static_cast<float>(1 + worker.rank()); }
  bool more() const {
    return strategy->lockstep() || strategy->survives_losses()
               ? steps < kSteps
               : worker.progress.samples < kSteps * kBatch * worker.size();
  }

  Task<> step() {
    driver.expect(kBatch);
    co_await worker.loop().sleep_for(1ms);
    co_await driver.begin();
    fill(arena.gradients(), gradient());
    all_ready();
    co_await driver.end(kBatch);
    ++steps;
  }

  // All have the same, and it is what this model's gradients make.
  Task<> check(Fabric& fabric) {
    co_await driver.flush();
    const Span mine = arena.parameters().at({0, 5000});
    const auto memory = allocate_on_heap(mine.count);
    std::ranges::copy(floats_of(mine), floats_of(memory->span()).begin());
    co_await fabric.broadcast(kCheck, memory->span(), 0, fabric.loop().now() + 120s);
    require(std::ranges::equal(floats_of(mine), floats_of(memory->span())), "replicas differ");
    // Who has a pace of its own may have made more steps before it heard that all were made.
    std::int64_t longest = steps;
    const Merge greater = [](std::span<std::byte> into, std::span<const std::byte> from) {
      pack(into, std::max(unpack<std::int64_t>(into), unpack<std::int64_t>(from)));
    };
    co_await fabric.combine(kCheck, message_in(longest), greater, fabric.loop().now() + 120s);
    const double one = -kRate * static_cast<double>(scale);  // a step's on rank 0
    const double most = one * kSteps;
    const double least =
        one * static_cast<double>(std::max<std::int64_t>(longest, kSteps)) * (worker.size() + 1);
    require(floats_of(mine)[0] >= 1.05 * least && floats_of(mine)[0] <= 0.05 * most,
            std::to_string(floats_of(mine)[0]) + " of [" + std::to_string(least) + ", " +
                std::to_string(most) + "]");
    if (!strategy->survives_losses()) co_return;
    const nlohmann::json figures = strategy->figures();
    auto averagings = figures["initiated"].get<std::int64_t>();
    const bool alone = averagings + figures["accepted"].get<std::int64_t>() == 0;
    // On a slow device one of them may have found nobody free in so few steps.
    require(!alone || fabric.loop().queue(), "trained alone");
    const Merge add = [](std::span<std::byte> into, std::span<const std::byte> from) {
      pack(into, unpack<std::int64_t>(into) + unpack<std::int64_t>(from));
    };
    co_await fabric.combine(kCheck, message_in(averagings), add, fabric.loop().now() + 120s);
    require(averagings > 0, "all trained alone");
    require(figures["dead"].empty(), "lost somebody");
  }

  int steps = 0;
  float scale;
};

class TwoModels : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  void run(const Body& body) { expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body); }
  const std::string& strategy() const { return std::get<2>(GetParam()); }
};

TEST_P(TwoModels, TrainSideBySide) {
  run([name = strategy()](Fabric& fabric) -> Task<> {
    Model a(fabric, name, 1), b(fabric, name, 100);
    while (a.more() || b.more()) {
      if (a.more()) co_await a.step();
      if (b.more()) co_await b.step();
    }
    co_await a.check(fabric);
    co_await b.check(fabric);
  });
}

TEST_P(TwoModels, TrainOneAfterTheOther) {
  run([name = strategy()](Fabric& fabric) -> Task<> {
    for (const float scale : {1.0F, 100.0F, 1.0F}) {
      Model model(fabric, name, scale);
      while (model.more()) co_await model.step();
      co_await model.check(fabric);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, TwoModels,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(3),
                                          testing::ValuesIn(strategy_names())),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

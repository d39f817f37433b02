// Synchronous strategies whose messages are bfloat16, against the same in float32.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "conformance/harness.h"
#include "conformance/whole_state.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/trainer.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<float>;

constexpr double kRate = 0.1, kMomentum = 0.9;

// What gradients are made of.
enum class Numbers {
  any,  // from -1 to 1
  few   // multiples of 1/16, of which four add up without rounding in bfloat16
};

// A number from 0 to below 2^32 that depends on both.
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  return (a * 40503 + b * 31) * 2654435761U % 4294967296U;
}

// Several buckets of 64 KB; and several of 1 MiB.
const std::vector<Arena::Parameter> kSmall{
    {"a", 3000}, {"b", 7}, {"c", 27000}, {"d", 30001}, {"e", 1}};
const std::vector<Arena::Parameter> kLarge{{"a", 270000}, {"b", 270000}, {"c", 300001}, {"d", 7}};

struct Rank : toy::Trainer {
  Rank(Fabric& fabric, const std::string& name, const StrategyOptions& options, Numbers numbers,
       double clip = 0, const std::vector<Arena::Parameter>& parameters = kSmall)
      : Trainer(fabric, parameters, name, options,
                {.rate = kRate, .momentum = kMomentum, .clip = clip}),
        numbers(numbers) {
    std::uint64_t i = 0;
    for (const Slot& slot : arena.slots())
      for (float& value : floats_of(arena.parameters().at(slot.range)))
        value = static_cast<float>(mixed(++i, 5)) / 4294967296.0F * 4 - 2;
  }

  // The gradient depends on rank and step alone, so an error in the parameters does not grow.
  void set_gradient(int number) {
    const auto salt = static_cast<std::uint64_t>(1000 * number + worker.rank());
    std::uint64_t i = 0;
    for (const Slot& slot : arena.slots())
      for (float& value : floats_of(arena.gradients().at(slot.range))) {
        const std::uint64_t random = mixed(++i, salt);
        value = numbers == Numbers::any ? static_cast<float>(random) / 2147483648.0F - 1
                                        : static_cast<float>(random % 33) / 16 - 1;
      }
  }

  // Waits for the end of it: others use the same channels.
  Task<> step(int number) {
    co_await driver.begin(8);
    set_gradient(number);
    all_ready();
    co_await driver.end(8);
    co_await read();
  }

  Values model() const {
    return {floats_of(arena.parameters()).begin(), floats_of(arena.parameters()).end()};
  }

  Numbers numbers;
};

Values rounded(Values values) {
  round_to_bf16({values.data(), values.size()});
  return values;
}

void expect_equal(const Values& got, const Values& want, const std::string& what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    if (got.at(i) != want[i])
      throw Error(what + " differs at " + std::to_string(i) + ": " + std::to_string(got[i]) +
                  ", expected " + std::to_string(want[i]));
}

Task<> expect_equal_replicas(Fabric& fabric, Values mine) {
  const Values before = mine;
  co_await fabric.broadcast(9, {mine.data(), mine.size()}, 0, fabric.loop().now() + 120s);
  expect_equal(before, mine, "a replica");
}

StrategyOptions with(const std::string& wire, StrategyOptions more = {{"fusion", "64KB"}}) {
  more["wire"] = wire;
  return more;
}

class Wires : public testing::TestWithParam<std::tuple<World, int, std::string>> {
 protected:
  const std::string& strategy() const { return std::get<2>(GetParam()); }
  void run_all_ok(const Body& body) {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

// Where the parameters themselves are rounded.
class RoundedWires : public Wires {};

// An error of one gradient is at most (2^-8 mean|g|), and 2^-8 of the mean again where that travels
// too. With |g| at most 1 an update k is off by at most that times lr Σ momentum^j.
TEST_P(Wires, StaysWithinTheBoundAndKeepsReplicasEqual) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    Rank half(fabric, name, with("bf16"), Numbers::any);
    Rank full(fabric, name, with("f32"), Numbers::any);
    double growth = 0, bound = 0;
    for (int step = 1; step <= 5; ++step) {
      co_await half.step(step);
      co_await full.step(step);
      co_await expect_equal_replicas(fabric, half.model());
      growth = 1 + kMomentum * growth;
      bound += kRate * growth * std::ldexp(1.01, name == "dear" ? -8 : -7);
    }
    co_await half.driver.flush();
    co_await full.driver.flush();
    co_await expect_equal_replicas(fabric, half.model());
    const Values got = half.model(), want = full.model();
    if (fabric.size() == 1) {
      expect_equal(got, want, "alone, the model");
      co_return;
    }
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    if (most > bound || most < bound / 1000) throw Error("off by " + std::to_string(most));
  });
}

// Only what travels is rounded: nothing is lost from what bfloat16 holds, whatever else happens.
TEST_P(Wires, WithGradientsThatFitGivesTheBitsOfFloat32) {
  for (const double clip : {0.0, 20.0})
    run_all_ok([name = strategy(), clip](Fabric& fabric) -> Task<> {
      Rank half(fabric, name, with("bf16"), Numbers::few, clip);
      Rank full(fabric, name, with("f32"), Numbers::few, clip);
      for (int step = 1; step <= 6; ++step) {
        co_await half.step(step);
        co_await full.step(step);
        if (step == 3) co_await half.driver.flush();  // and goes on at the exact model
        if (step == 4) {
          co_await half.driver.flush();
          half.driver.after_flush();
        }
      }
      co_await half.driver.flush();
      co_await full.driver.flush();
      expect_equal(half.model(), full.model(), "the model");
      WholeState got = co_await whole_state(fabric, *half.strategy, half.arena.size());
      WholeState want = co_await whole_state(fabric, *full.strategy, full.arena.size());
      expect_equal(got.at("momentum"), want.at("momentum"), "the momentum");
    });
}

TEST_P(Wires, AStepSendsHalfTheBytes) {
  run_all_ok([name = strategy()](Fabric& fabric) -> Task<> {
    std::vector<std::uint64_t> sent;
    for (const char* wire : {"f32", "bf16"}) {
      Rank rank(fabric, name, with(wire), Numbers::any);
      const std::uint64_t before = fabric.bytes_sent();
      for (int step = 1; step <= 3; ++step) co_await rank.step(step);
      sent.push_back(fabric.bytes_sent() - before);
    }
    const double ratio = static_cast<double>(sent[1]) / static_cast<double>(sent[0]);
    // In two levels that is so of what goes between hosts.
    const double each = workers_of_a_host(fabric), hosts = fabric.size() / each;
    const double inside = hosts * (each - 1), between = hosts - 1;
    const double want = (inside + between / 2) / (inside + between);
    if (fabric.size() > 1 && !(ratio > want - 0.001 && ratio < want + 0.005))
      throw Error("sent " + std::to_string(ratio) + " of it");
  });
}

TEST_P(RoundedWires, ForwardReadsTheRoundedModelAndFlushGivesTheExactOne) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    Rank rank(fabric, "dear", with("bf16"), Numbers::any);
    for (int step = 1; step <= 3; ++step) co_await rank.step(step);
    const Values live = rank.model();
    expect_equal(live, rounded(live), "what forward reads, rounded,");
    co_await rank.driver.flush();
    const Values exact = rank.model();
    if (exact == live) throw Error("the flushed model is rounded");
    expect_equal(rounded(exact), live, "the exact model, rounded,");
    co_await rank.driver.flush();
    expect_equal(rank.model(), exact, "a second flush");
    rank.driver.after_flush();
    expect_equal(rank.model(), live, "what forward reads after it");
    co_await rank.driver.flush();
    expect_equal(rank.model(), exact, "a flush after that");
  });
}

// While the tuner changes the plan, exact parameters move to their new owners.
TEST_P(RoundedWires, ANewPlanKeepsTheExactModel) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const StrategyOptions tuned{{"fusion_start", "1MiB"}, {"trial_steps", "1"}};
    Rank half(fabric, "dear", with("bf16", tuned), Numbers::few, 0, kLarge);
    Rank full(fabric, "dear", with("f32"), Numbers::few, 0, kLarge);
    std::set<int> plans;
    for (int step = 1; step <= 15; ++step) {
      co_await half.step(step);
      co_await full.step(step);
      plans.insert(half.strategy->plan().count());
      expect_equal(half.model(), rounded(half.model()), "what forward reads, rounded,");
    }
    if (plans.size() < 2) throw Error("the plan never changed");
    co_await half.driver.flush();
    co_await full.driver.flush();
    expect_equal(half.model(), full.model(), "the model");
  });
}

TEST_P(RoundedWires, AValueThatSomebodyWroteCounts) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    Rank half(fabric, "dear", with("bf16"), Numbers::few);
    Rank full(fabric, "dear", with("f32"), Numbers::few);
    for (int step = 1; step <= 4; ++step) {
      for (Rank* rank : {&half, &full}) {
        co_await rank->step(step);
        if (step == 2)
          for (std::size_t i = 0; i < rank->arena.size(); i += 1000)
            floats_of(rank->arena.parameters())[i] = 17.123F + static_cast<float>(i);
      }
    }
    co_await half.driver.flush();
    co_await full.driver.flush();
    expect_equal(half.model(), full.model(), "the model");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Wires,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 4),
                                          testing::Values("allreduce", "dear")),
                         name_of_three);
INSTANTIATE_TEST_SUITE_P(Worlds, RoundedWires,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 4),
                                          testing::Values("dear")),
                         name_of_three);

}  // namespace
}  // namespace skein::conformance

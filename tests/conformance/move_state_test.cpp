// State that moves to whom it belongs under another plan, on real ranks.
#include "strategy/move_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>
#include <utility>

#include "conformance/harness.h"
#include "optimize/adamw.h"
#include "skein/error.h"
#include "strategy/shards.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

// Another value for each element of each vector.
float value_of(std::size_t vector, std::size_t element) {
  return static_cast<float>(element % 1000003) + (vector == 0 ? 0.0F : 0.5F);
}

// A worker that owns its shards of a plan.
struct Owner {
  Owner(Fabric& fabric, const std::vector<Arena::Parameter>& parameters)
      : arena(parameters, allocate_absent),
        optimizer(arena.size(), AdamwOptions{}, allocator(fabric)),
        worker(fabric, arena, optimizer, LearningRate(0.1, Schedule{}), trace, 120s, 0) {}

  BucketPlan plan(std::size_t bucket_bytes) const {
    return BucketPlan(arena, Fusion::of(bucket_bytes));
  }

  void own(const BucketPlan& plan) {
    optimizer.own(shards_of(worker.fabric(), plan, worker.rank()));
    OwnedState& state = optimizer.owned_state();
    for (std::size_t vector = 0; vector < 2; ++vector)
      for (const Range& range : optimizer.owned())
        state.split(range, [&](Range piece, Range at) {
          const auto all_state_vector = floats_of(state.vector(vector));
          for (std::size_t i = 0; i < piece.count; ++i)
            all_state_vector[at.offset + i] = value_of(vector, piece.offset + i);
        });
  }

  void check(const BucketPlan& plan) {
    std::vector<Range> expected = shards_of(worker.fabric(), plan, worker.rank());
    std::erase_if(expected, [](const Range& range) { return range.count == 0; });
    if (optimizer.owned() != expected) throw Error("owns something else");
    OwnedState& state = optimizer.owned_state();
    for (std::size_t vector = 0; vector < 2; ++vector)
      for (const Range& range : optimizer.owned())
        state.split(range, [&](Range piece, Range at) {
          const auto all_state_vector = floats_of(state.vector(vector));
          for (std::size_t i = 0; i < piece.count; ++i)
            if (all_state_vector[at.offset + i] != value_of(vector, piece.offset + i))
              throw Error("another state at " + std::to_string(piece.offset + i));
        });
  }

  NoTrace trace;
  Arena arena;
  Adamw optimizer;
  Worker worker;
};

class MoveState : public testing::TestWithParam<std::tuple<World, int>> {};

TEST_P(MoveState, KeepsEveryBitOnTheWayThroughSeveralPlans) {
  const auto& [world, size] = GetParam();
  expect_ok(world, size, [](Fabric& fabric) -> Task<> {
    // One that is shorter than a cache line, one that nobody shares fairly, one of several
    // messages.
    const std::vector<Arena::Parameter> parameters{
        {"tiny", 3}, {"odd", 70001}, {"large", 2500000}, {"last", 17}};
    Owner owner(fabric, parameters);
    BucketPlan plan = owner.plan(1 << 10);
    owner.own(plan);
    const std::array<std::size_t, 3> sizes{1 << 30, 1 << 19, 16};
    for (const std::size_t bytes : sizes) {
      const BucketPlan next = owner.plan(bytes);
      co_await move_state(owner.worker, plan, next, owner.worker.channel(0));
      owner.check(next);
      plan = next;
    }
  });
}

// The plane is laid out anew, as the first forward reads it: every parameter's state moves to whom
// it belongs then.
TEST_P(MoveState, BringsEveryBitToAnotherLayout) {
  const auto& [world, size] = GetParam();
  expect_ok(world, size, [](Fabric& fabric) -> Task<> {
    const std::vector<Arena::Parameter> parameters{
        {"tiny", 3}, {"odd", 70001}, {"large", 2500000}, {"last", 17}};
    const std::array<std::size_t, 4> order{2, 0, 3, 1};
    std::vector<Arena::Parameter> reordered;
    for (const std::size_t slot : order) reordered.push_back(parameters[slot]);
    Owner before(fabric, parameters), after(fabric, reordered);
    const BucketPlan plan = before.plan(1 << 18), next = after.plan(1 << 20);
    before.own(plan);
    after.optimizer.own(shards_of(fabric, next, fabric.rank()));
    std::vector<Placed> placed(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      placed[order[i]] = {before.arena.slots()[order[i]].range,
                          after.arena.slots()[i].range.offset};
    co_await move_state(after.worker, before.optimizer, plan, next, placed,
                        after.worker.channel(0));
    OwnedState& state = after.optimizer.owned_state();
    for (std::size_t vector = 0; vector < 2; ++vector)
      for (std::size_t i = 0; i < order.size(); ++i) {
        const Range slot = after.arena.slots()[i].range, was = placed[order[i]].before;
        for (const Range& own : state.owned()) {
          const std::size_t begin = std::max(slot.offset, own.offset);
          const std::size_t end = std::min(slot.end(), own.end());
          if (begin >= end) continue;
          const auto values =
              floats_of(state.vector(vector).at(state.place_of({begin, end - begin})));
          for (std::size_t at = begin; at < end; ++at)
            if (values[at - begin] != value_of(vector, was.offset + at - slot.offset))
              throw Error("another state of " + reordered[i].name);
        }
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, MoveState,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3)),
                         name_of);

// Bytes of the process's memory now, and at most since the last call.
struct Usage {
  long now, peak;
};
Usage take_usage() {
  std::ifstream status("/proc/self/status");
  Usage memory{};
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) memory.peak = std::stol(line.substr(6)) * 1024;
    if (line.starts_with("VmRSS:")) memory.now = std::stol(line.substr(6)) * 1024;
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  return memory;
}

// Two layouts of 16 parameters, the second the other way round, whose state is 128 MiB.
TEST(MoveStateMemory, NobodyHoldsMoreThanItsPartWhenTheLayoutChanges) {
  for (const World& world : worlds()) {
    if (world.name != "local") continue;
    expect_ok(world, 2, [](Fabric& fabric) -> Task<> {
      constexpr long kMiB = 1 << 20;
      const std::vector<Arena::Parameter> parameters(16, {"large", 1 << 20});
      Owner before(fabric, parameters), after(fabric, parameters);
      const BucketPlan plan = before.plan(4 * kMiB), next = after.plan(64 * kMiB);
      before.own(plan);
      after.optimizer.own(shards_of(fabric, next, fabric.rank()));
      std::vector<Placed> placed;
      for (std::size_t i = 0; i < 16; ++i)
        placed.push_back({before.arena.slots()[i].range, after.arena.slots()[15 - i].range.offset});
      co_await fabric.barrier(after.worker.channel(1), after.worker.deadline());
      const long start = take_usage().now;
      co_await move_state(after.worker, before.optimizer, plan, next, placed,
                          after.worker.channel(0));
      const long extra = take_usage().peak - start;
      if (extra > 40 * kMiB) throw Error(std::to_string(extra / kMiB) + " MiB more than before");
    });
  }
}

// A worker that held the whole of both vectors would need 128 MiB more.
TEST(MoveStateMemory, NobodyHoldsTheWholeStateOfAnother) {
  for (const World& world : worlds()) {
    if (world.name != "local") continue;
    expect_ok(world, 2, [](Fabric& fabric) -> Task<> {
      constexpr long kMiB = 1 << 20;
      const std::vector<Arena::Parameter> parameters(16, {"large", 1 << 20});  // a plane of 64 MiB
      Owner owner(fabric, parameters);
      const BucketPlan fine = owner.plan(4 * kMiB), whole = owner.plan(64 * kMiB);
      owner.own(fine);
      co_await fabric.barrier(owner.worker.channel(1), owner.worker.deadline());
      const std::array<std::pair<const BucketPlan*, const BucketPlan*>, 2> ways{
          {{&fine, &whole}, {&whole, &fine}}};
      for (const auto& [from, to] : ways) {
        const long before = take_usage().now;
        co_await move_state(owner.worker, *from, *to, owner.worker.channel(0));
        const long extra = take_usage().peak - before;
        // Half of its part of a vector, 16 MiB, comes to one of them before anything of its own can
        // go. Besides that there are a few messages of 4 MiB.
        if (extra > 36 * kMiB) throw Error(std::to_string(extra / kMiB) + " MiB more than before");
        owner.check(*to);
      }
    });
  }
}

}  // namespace
}  // namespace skein::conformance

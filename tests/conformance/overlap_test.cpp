// What overlaps on real ranks: nothing that can leave waits for what comes after it.
#include <gtest/gtest.h>

#include <vector>

#include "conformance/harness.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "strategy/registry.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

class Notes final : public Trace {
 public:
  struct Span {
    Lane lane;
    Time begin;
  };
  void span(Lane lane, std::string_view, Time begin, Time) override {
    all.push_back({lane, begin});
  }
  Time begin_of(Lane lane, std::size_t index) const {
    for (const Span& each : all)
      if (each.lane == lane && index-- == 0) return each.begin;
    throw Error("there were not so many");
  }
  std::vector<Span> all;
};

class OverlapOf : public testing::TestWithParam<World> {};

TEST_P(OverlapOf, DearsFirstGatherLeavesBeforeTheSecondShardIsUpdated) {
  expect_ok(GetParam(), 2, [](Fabric& fabric) -> Task<> {
    Arena arena({{"a", 100000}, {"b", 100000}, {"c", 100000}},
                [&](std::size_t count) { return fabric.allocate(count); });
    Sgd optimizer(arena.size(), {0.9, 0, false}, allocator(fabric));
    Notes notes;
    Worker worker(fabric, arena, optimizer, LearningRate(0.1, Schedule{}), notes, 120s, 0);
    const auto dear = make_strategy("dear", {{"fusion", "none"}}, worker);
    for (int step = 0; step < 3; ++step) {
      notes.all.clear();
      co_await dear->begin_step(1);
      for (int bucket = 0; bucket < 3; ++bucket) dear->gradient_ready(bucket);
      co_await dear->end_step(1);
      for (int bucket = 0; bucket < 3; ++bucket) co_await dear->need(bucket);
      if (notes.begin_of(Lane::all_gather, 0) > notes.begin_of(Lane::update, 1))
        throw Error("the first gather left after the second update had begun");
    }
  });
}

Task<> count_turns(Loop& loop, const bool& over, int& turns) {
  while (!over) {
    ++turns;
    co_await loop.yield();
  }
}

TEST(OverlapOnOneHost, ALongSumGivesOthersTheirTurns) {
  expect_ok(worlds().front(), 2, [](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(4 << 20);
    int turns = 0;
    bool over = false;
    // Both are here: what comes now is work, not waiting.
    co_await fabric.barrier(7, fabric.loop().now() + 120s);
    const ScopedJob other(fabric.loop().spawn(count_turns(fabric.loop(), over, turns)));
    co_await fabric.reduce_scatter(8, memory->span(), fabric.loop().now() + 120s);
    over = true;
    if (turns < 8) throw Error(std::to_string(turns) + " turns");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, OverlapOf, testing::ValuesIn(worlds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::conformance

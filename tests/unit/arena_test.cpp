#include "core/arena.h"

#include <gtest/gtest.h>

#include <span>

#include "core/rng.h"

namespace skein {
namespace {

TEST(Arena, LaysParametersOnCacheLinesAndFindsThem) {
  Arena arena({{"a", 3}, {"b", 16}, {"empty", 0}, {"c", 17}}, allocate_on_heap);
  EXPECT_EQ(arena.size(), 16u + 16u + 32u);
  EXPECT_EQ(arena.slots()[1].range, (Range{16, 16}));
  EXPECT_EQ(arena.slots()[3].range, (Range{32, 17}));
  EXPECT_EQ(arena.slot_at(2), 0);
  EXPECT_EQ(arena.slot_at(3), -1);
  EXPECT_EQ(arena.slot_at(16), 1);
  EXPECT_EQ(arena.slot_at(32), 3);
  EXPECT_EQ(arena.slot_at(49), -1);
  EXPECT_EQ(arena.slot_at(1000), -1);
  for (const Span plane : {arena.parameters(), arena.gradients()}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(plane.data) % 64, 0u);
    for (const float value : plane.host()) EXPECT_EQ(value, 0);
  }
}

TEST(Arena, PlanesAreMadeOnceAndStay) {
  Arena arena({{"a", 100}}, allocate_on_heap);
  EXPECT_EQ(arena.extra_planes(), 0u);
  const Span plane = arena.plane("momentum");
  plane.host()[5] = 7;
  EXPECT_EQ(arena.plane("momentum").data, plane.data);
  EXPECT_NE(arena.plane("other").data, plane.data);
  EXPECT_EQ(arena.extra_planes(), 2u);
}

TEST(ArenaDeathTest, ARangeOutsideASpanAborts) {
  const Arena arena({{"a", 16}}, allocate_on_heap);
  EXPECT_DEATH((void)arena.parameters().at({10, 7}), "range \\[10, \\+7\\) of a span of 16");
}

TEST(Rng, IsTheSameEverywhereAndSplitsIndependently) {
  Rng rng(42);
  EXPECT_EQ(rng(), 1546998764402558742u);
  Rng again(42);
  again();
  EXPECT_EQ(Rng(42).split(3)(), again.split(3)());
  EXPECT_NE(Rng(42).split(3)(), Rng(42).split(4)());
  std::vector<int> seen(100);
  for (const std::uint32_t i : Rng(1).permutation(100)) ++seen[i];
  for (const int count : seen) EXPECT_EQ(count, 1);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 100000, 0, 0.02);
  EXPECT_NEAR(squares / 100000, 1, 0.02);
}

}  // namespace
}  // namespace skein

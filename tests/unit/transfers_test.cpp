#include <gtest/gtest.h>

#include "core/arena.h"
#include "fabric/levels.h"
#include "optimize/owned_state.h"
#include "strategy/move_state.h"
#include "strategy/shards.h"
#include "unit/stub_fabric.h"

namespace skein {
namespace {

TEST(Transfers, CoverThePlaneOnceWithTheOwnersOfBothPlans) {
  const SteadyClock clock;
  Loop loop(clock);
  const Arena arena({{"a", 1000}, {"b", 77}, {"c", 40000}, {"d", 5}, {"e", 9000}}, allocate_absent);
  // Some flat, and some with two on each host, whose parts do not lie in the order of ranks.
  for (const auto& [size, per_host] : {std::pair{1, 1}, {2, 1}, {5, 1}, {4, 2}, {6, 3}})
    for (const std::size_t longest : {std::size_t{100}, std::size_t{1} << 20}) {
      std::vector<int> host_of;
      for (int rank = 0; rank < size; ++rank) host_of.push_back(rank / per_host);
      const LevelsFabric fabric(std::make_unique<StubFabric>(loop, 0, size), Hosts(host_of));
      const BucketPlan before(arena, Fusion::of(4000)), after(arena, Fusion::of(100000));
      std::size_t end = 0;
      for (const Transfer& each : transfers(fabric, before, after, longest)) {
        EXPECT_EQ(each.range.offset, end);
        EXPECT_GT(each.range.count, 0u);
        EXPECT_LE(each.range.count, longest);
        const auto inside = [&](const BucketPlan& plan, int rank) {
          for (const Range& own : shards_of(fabric, plan, rank))
            if (own.offset <= each.range.offset && each.range.end() <= own.end()) return true;
          return false;
        };
        EXPECT_TRUE(inside(before, each.from)) << each.range.offset;
        EXPECT_TRUE(inside(after, each.to)) << each.range.offset;
        end = each.range.end();
      }
      EXPECT_EQ(end, arena.size());
    }
}

TEST(OwnedStateMove, KeepsWhatIsCopiedAndForgetsTheRest) {
  constexpr std::size_t kSize = 1 << 20;
  OwnedState state(kSize, {"one", "two"});
  for (std::size_t i = 0; i < kSize; ++i) state.vector(0).host()[i] = static_cast<float>(i);
  {
    OwnedState::Move move(state, {{10, 20}, {500000, 300000}});
    EXPECT_TRUE(move.had(0));
    EXPECT_FALSE(move.had(1));
    EXPECT_EQ(move.before(0, {499999, 3}).host()[1], 500000.0F);
    EXPECT_EQ(move.now(0, {10, 20}).host()[0], 0.0F);
    move.forget(0, 499999);
    EXPECT_EQ(move.before(0, {499999, 3}).host()[0], 499999.0F) << "what was not to be forgotten";
    move.now(0, {500000, 2}).host()[1] = 7;
  }
  EXPECT_EQ(state.vector(0).count, 300020u);
  EXPECT_EQ(state.vector(0).host()[21], 7.0F);
}

TEST(OwnedStateMove, OwningLessOfALargeVectorKeepsItsValues) {
  constexpr std::size_t kSize = 3 << 20;
  OwnedState state(kSize, {"one"});
  for (std::size_t i = 0; i < kSize; ++i) state.vector(0).host()[i] = static_cast<float>(i);
  const std::vector<Range> less{{5, 100000}, {1500001, 777}, {2000000, 1000000}};
  state.own(less);
  for (const Range& range : less)
    state.split(range, [&](Range piece, Range at) {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < piece.count; ++i)
        wrong += state.vector(0).host()[at.offset + i] != static_cast<float>(piece.offset + i);
      EXPECT_EQ(wrong, 0u);
    });
}

}  // namespace
}  // namespace skein

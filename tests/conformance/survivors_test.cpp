// Sums over surviving workers, with ranks that die before, during and between calls.
#include "fabric/survivors.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "conformance/harness.h"
#include "core/packed.h"
#include "core/rng.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kUp = 3, kDown = 4;

Deadline soon(Fabric& fabric) { return fabric.loop().now() + 20s; }

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// Values whose sum depends on the order in which they are added.
void set(Span values, int rank) {
  Rng rng(static_cast<std::uint64_t>(rank) + 1);
  for (float& value : floats_of(values)) value = static_cast<float>(rng.normal());
}

// The sum over `ranks`, in their order.
std::vector<float> expected(const std::vector<int>& ranks, std::size_t count) {
  std::vector<float> sum, each(count);
  for (const int rank : ranks) {
    set({each.data(), count}, rank);
    if (sum.empty())
      sum = each;
    else
      for (std::size_t i = 0; i < count; ++i) sum[i] += each[i];
  }
  return sum;
}

std::vector<int> ranks_without(int size, int missing) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank)
    if (rank != missing) ranks.push_back(rank);
  return ranks;
}

Task<> check_sum(Survivors& survivors, Fabric& fabric, const std::vector<int>& ranks,
                 std::size_t count) {
  const auto values = fabric.allocate(count);
  set(values->span(), fabric.rank());
  const int contributors = co_await survivors.sum(values->span(), soon(fabric));
  require(contributors == static_cast<int>(ranks.size()),
          "contributors: " + std::to_string(contributors));
  require(std::ranges::equal(floats_of(values->span()), expected(ranks, count)), "another sum");
}

class SurvivorsOf : public testing::TestWithParam<std::tuple<World, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  const World& world() const { return std::get<0>(GetParam()); }
  void run_all_but(int dead, const Body& body) { expect_ok(world(), size(), body, dead); }
};

class SurvivorsOfPeers : public SurvivorsOf {};

TEST_P(SurvivorsOf, AddUpInOrderOfRank) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    for (const std::size_t count : {0, 1, 17, 4097, 300001})
      co_await check_sum(survivors, fabric, ranks_without(fabric.size(), -1), count);
    require(survivors.lost().empty(), "somebody was lost");
  });
}

TEST_P(SurvivorsOf, HaveAMean) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    auto value = static_cast<float>(fabric.rank());
    co_await survivors.mean({&value, 1}, soon(fabric));
    require(value == static_cast<float>(fabric.size() - 1) / 2, "mean " + std::to_string(value));
  });
}

TEST_P(SurvivorsOfPeers, DoWithoutOneThatDiedBefore) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  for (const int dead : {0, 1, size() - 1})
    run_all_but(dead, [&, dead](Fabric& fabric) -> Task<> {
      if (fabric.rank() == dead) co_await world().die(fabric);
      Survivors survivors(fabric, kUp, kDown);
      for (const std::size_t count : {1, 300001})
        co_await check_sum(survivors, fabric, ranks_without(fabric.size(), dead), count);
      require(survivors.lost() == std::vector<int>{dead}, "others were lost");
      require(!survivors.contributors()[static_cast<std::size_t>(dead)], "a dead rank contributed");
    });
}

// It has said that it contributes, and no more.
TEST_P(SurvivorsOfPeers, DoWithoutOneThatDiesDuringACall) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  run_all_but(size() - 1, [&](Fabric& fabric) -> Task<> {
    if (fabric.rank() == fabric.size() - 1) {
      std::array<std::int64_t, 2> header{1, 17 * sizeof(float)};
      co_await fabric.send(kUp, 0, message_in(header), soon(fabric));
      co_await world().die(fabric);
    }
    Survivors survivors(fabric, kUp, kDown);
    for (const std::size_t count : {17, 18})
      co_await check_sum(survivors, fabric, ranks_without(fabric.size(), fabric.size() - 1), count);
  });
}

// Call after call while one dies: all come to the same in the end, and no call hangs. Only those
// in which the lowest rank dies itself may end differently here and there.
TEST_P(SurvivorsOfPeers, GoOnWhenOneDiesAmongManyCalls) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  for (const int dead : {0, size() - 1})
    run_all_but(dead, [&, dead](Fabric& fabric) -> Task<> {
      Survivors survivors(fabric, kUp, kDown);
      int last = fabric.size(), odd = 0;
      for (int call = 0; call < 60; ++call) {
        if (fabric.rank() == dead && call == 31) co_await world().die(fabric);
        float one = 1;
        last = co_await survivors.sum({&one, 1}, soon(fabric));
        odd += one == static_cast<float>(last) ? 0 : 1;
      }
      require(last == fabric.size() - 1, std::to_string(last) + " in the end");
      require(odd == 0, "a sum that is not that of its contributors");
    });
}

// One that comes too late is told, and ends alone; the others do not wait twice.
TEST_P(SurvivorsOfPeers, LeaveOutOneThatComesTooLate) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    const bool late = fabric.rank() == fabric.size() - 1;
    if (late) co_await fabric.loop().sleep_for(900ms);
    for (int call = 0; call < 2; ++call) {
      float one = 1;
      const int count = co_await survivors.sum({&one, 1}, fabric.loop().now() + 300ms);
      require(count == (late ? 1 : fabric.size() - 1), std::to_string(count) + " contributed");
    }
    if (!late) co_await fabric.loop().sleep_for(1500ms);  // it must not learn it by their leaving
  });
}

// The lowest rank, who leads the others: they go on with the next, and it must not go on alone.
// What they had sent it before may look like one more sum where nobody decides who is lost.
TEST_P(SurvivorsOfPeers, TellTheLowestRankThatTheyHaveGoneOnWithoutIt) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    const bool late = fabric.rank() == 0;
    if (late) co_await fabric.loop().sleep_for(2s);
    for (int call = 0; call < 2; ++call) {
      float one = 1;
      const int count = co_await survivors.sum({&one, 1}, fabric.loop().now() + 400ms);
      if (!late) require(count == fabric.size() - 1, std::to_string(count) + " contributed");
    }
    require(survivors.left_behind() == late, late ? "it was not told" : "a wrong one was told");
    if (!late) co_await fabric.loop().sleep_for(2s);  // it must not learn it by their leaving
  });
}

// The root waits for the silent one first, and has waited long enough when it comes to the others,
// who have been there all the time.
TEST_P(SurvivorsOfPeers, LoseOnlyTheOneThatIsSilent) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    if (fabric.rank() == 1) {
      co_await fabric.loop().sleep_for(2500ms);
      co_return;
    }
    const auto values = fabric.allocate(300001);
    for (int call = 0; call < 2; ++call) {
      std::fill(floats_of(values->span()).begin(), floats_of(values->span()).end(), 1.0F);
      const int count = co_await survivors.sum(values->span(), fabric.loop().now() + 800ms);
      require(count == fabric.size() - 1, std::to_string(count) + " contributed");
      require(floats_of(values->span())[300000] == static_cast<float>(count), "another sum");
    }
    require(survivors.lost() == std::vector<int>{1}, "others were lost");
    require(!survivors.left_behind(), "a healthy one was left behind");
  });
}

TEST_P(SurvivorsOfPeers, DoNotWaitForOneThatIsKnownToBeLost) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    if (fabric.rank() == fabric.size() - 1) co_return;
    survivors.lose(fabric.size() - 1);
    co_await check_sum(survivors, fabric, ranks_without(fabric.size(), fabric.size() - 1), 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, SurvivorsOf,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(1, 2, 5)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Worlds, SurvivorsOfPeers,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(3, 5)),
                         name_of);

}  // namespace
}  // namespace skein::conformance

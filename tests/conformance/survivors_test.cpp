// Sums over surviving workers, with ranks that die before, during and between calls.
#include "fabric/survivors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <cmath>

#include "conformance/timed.h"
#include "core/packed.h"
#include "core/rng.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kUp = 3, kDown = 4, kWord = 5;

Deadline soon(Fabric& fabric) { return fabric.loop().now() + 120s; }

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// Tells `peer` that this rank has come so far.
Task<> tell(Fabric& fabric, int peer) {
  float word = 1;
  co_await fabric.send(kWord, peer, {&word, 1}, soon(fabric));
}

// Waits until `peer` has come so far.
Task<> hear(Fabric& fabric, int peer) {
  float word = 0;
  co_await fabric.receive(kWord, peer, {&word, 1}, soon(fabric));
}

// Rank `late` waits until all others have come so far, who then stay until it has heard of them
// what there is to hear: it is not to learn it by their leaving.
Task<> wait_for_the_others(Fabric& fabric, int late) {
  for (int peer = 0; peer < fabric.size(); ++peer)
    if (peer != late) co_await hear(fabric, peer);
}
Task<> tell_the_others(Fabric& fabric, int late) {
  for (int peer = 0; peer < fabric.size(); ++peer)
    if (peer != late) co_await tell(fabric, peer);
}
Task<> meet_the_late(Fabric& fabric, int late) {
  co_await tell(fabric, late);
  co_await hear(fabric, late);
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
  void run_timed(Duration unit, const TimedBody& body) {
    expect_ok_in_time(world(), size(), unit, body);
  }
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
  run_timed(300ms, [](Fabric& fabric, Duration unit) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    const int last = fabric.size() - 1;
    const bool late = fabric.rank() == last;
    if (late) co_await wait_for_the_others(fabric, last);
    for (int call = 0; call < 2; ++call) {
      float one = 1;
      const int count = co_await survivors.sum({&one, 1}, fabric.loop().now() + unit);
      require(count == (late ? 1 : last), std::to_string(count) + " contributed");
    }
    if (late) co_await tell_the_others(fabric, last);
    if (!late) co_await meet_the_late(fabric, last);
  });
}

// The lowest rank, who leads the others: they go on with the next, and it must not go on alone.
// What they had sent it before may look like one more sum where nobody decides who is lost.
TEST_P(SurvivorsOfPeers, TellTheLowestRankThatTheyHaveGoneOnWithoutIt) {
  run_timed(400ms, [](Fabric& fabric, Duration unit) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    const bool late = fabric.rank() == 0;
    if (late) co_await wait_for_the_others(fabric, 0);
    for (int call = 0; call < 2; ++call) {
      float one = 1;
      const int count = co_await survivors.sum({&one, 1}, fabric.loop().now() + unit);
      if (!late) require(count == fabric.size() - 1, std::to_string(count) + " contributed");
    }
    require(survivors.left_behind() == late, late ? "it was not told" : "a wrong one was told");
    if (late) co_await tell_the_others(fabric, 0);
    if (!late) co_await meet_the_late(fabric, 0);
  });
}

// The root waits for the silent one first, and has waited long enough when it comes to the others,
// who have been there all the time.
TEST_P(SurvivorsOfPeers, LoseOnlyTheOneThatIsSilent) {
  run_timed(800ms, [](Fabric& fabric, Duration unit) -> Task<> {
    Survivors survivors(fabric, kUp, kDown);
    if (fabric.rank() == 1) {
      co_await wait_for_the_others(fabric, 1);
      co_return;
    }
    const auto values = fabric.allocate(300001);
    for (int call = 0; call < 2; ++call) {
      std::fill(floats_of(values->span()).begin(), floats_of(values->span()).end(), 1.0F);
      const int count = co_await survivors.sum(values->span(), fabric.loop().now() + unit);
      require(count == fabric.size() - 1, std::to_string(count) + " contributed");
      require(floats_of(values->span())[300000] == static_cast<float>(count), "another sum");
    }
    require(survivors.lost() == std::vector<int>{1}, "others were lost");
    require(!survivors.left_behind(), "a healthy one was left behind");
    co_await tell(fabric, 1);
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

// Parts of it are worth a message: it passes over a ring.
constexpr std::size_t kLong = 100003;
constexpr Channel kRing = 5;

std::vector<double> expected_mean(const std::vector<int>& ranks, std::size_t count) {
  std::vector<double> mean(count);
  std::vector<float> each(count);
  for (const int rank : ranks) {
    set({each.data(), count}, rank);
    for (std::size_t i = 0; i < count; ++i)
      mean[i] += static_cast<double>(each[i]) / static_cast<double>(ranks.size());
  }
  return mean;
}

void check_mean(Span got, const std::vector<int>& ranks) {
  const auto want = expected_mean(ranks, got.count);
  const auto values = floats_of(got);
  for (std::size_t i = 0; i < got.count; ++i)
    require(std::abs(values[i] - want[i]) < 1e-5, "another mean at " + std::to_string(i));
}

TEST_P(SurvivorsOf, MoveNoMoreThanTwoVectorsForAMeanWhereAllLive) {
  run_all_but(-1, [](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown, kRing);
    const auto ranks = ranks_without(fabric.size(), -1);
    for (const std::size_t count : {kLong, std::size_t{17}}) {
      const auto values = fabric.allocate(count);
      set(values->span(), fabric.rank());
      const std::vector<float> own(floats_of(values->span()).begin(),
                                   floats_of(values->span()).end());
      const std::uint64_t before = fabric.bytes_sent();
      double distance = -1;
      const int taken = co_await survivors.mean(values->span(), soon(fabric), &distance);
      require(taken == fabric.size(), std::to_string(taken) + " contributed");
      const std::uint64_t sent = fabric.bytes_sent() - before;
      require(count < kLong || sent <= 2 * count * sizeof(float) + 100000,
              std::to_string(sent) + " bytes sent");
      check_mean(values->span(), ranks);
      double want = 0;
      const auto mean = expected_mean(ranks, count);
      for (const int rank : ranks) {
        std::vector<float> each(count);
        set({each.data(), count}, rank);
        for (std::size_t i = 0; i < count; ++i)
          want += std::pow(each[i] - mean[i], 2) / fabric.size();
      }
      require(std::abs(distance - want) < 1e-4 * (1 + want),
              "distance " + std::to_string(distance));
      float one = values->span().count > 3 ? floats_of(values->span())[3] : 0;
      const float mine = one;
      co_await fabric.broadcast(6, {&one, 1}, 0, soon(fabric));
      require(one == mine, "ranks have other bits");
    }
    require(survivors.lost().empty(), "somebody was lost");
  });
}

// Eight hosts on 1 Gb/s and a model of 18 MB, which is two pieces, in virtual time: a star brings
// fourteen models through the lowest rank, one after the other, and a ring less than two through
// each.
TEST(SurvivorsOnASlowNetwork, TakeTheTimeOfARingForAMeanWhereAllLive) {
  Duration star{}, ring{};
  expect_ok(sim_world("1gbe"), 8, [&](Fabric& fabric) -> Task<> {
    for (const bool over_ring : {false, true}) {
      Survivors survivors(fabric, over_ring ? 1 : kUp, over_ring ? 2 : kDown,
                          over_ring ? std::optional<Channel>(kRing) : std::nullopt);
      const std::size_t count = (std::size_t{1} << 22) + 300001;
      const auto values = fabric.allocate(count);
      std::ranges::fill(floats_of(values->span()), static_cast<float>(fabric.rank()));
      co_await fabric.barrier(0, soon(fabric));
      const Time begin = fabric.loop().now();
      co_await survivors.mean(values->span(), soon(fabric));
      Duration& longest = over_ring ? ring : star;
      longest = std::max(longest, Duration(fabric.loop().now() - begin));
      require(
          std::ranges::count(floats_of(values->span()), 3.5F) == static_cast<std::ptrdiff_t>(count),
          "another mean");
    }
  });
  RecordProperty("star_ms", std::to_string(1e3 * seconds(star)));
  RecordProperty("ring_ms", std::to_string(1e3 * seconds(ring)));
  EXPECT_LT(seconds(ring), seconds(star) / 3) << seconds(star) << " s over the star";
  EXPECT_GT(seconds(ring), 2.0 * 7 / 8 * (16 << 20) * 8 / 1e9) << "less than the network can do";
}

// The part of the lowest rank in the agreement with which a mean over a ring begins, as far as its
// answer to rank 1. The others never hear of it.
Task<> agree_with_rank_1_alone(Fabric& fabric) {
  std::array<std::uint64_t, 2> record{};
  for (int peer = 1; peer < fabric.size(); ++peer) {
    std::array<std::int64_t, 2> header{};
    co_await fabric.receive(kUp, peer, message_in(header), soon(fabric));
    require(header == std::array<std::int64_t, 2>{1, sizeof(record)}, "another announcement");
    co_await fabric.receive(kUp, peer, message_in(record), soon(fabric));
  }
  // The number of the block, the word for a sum, who contributed and who lives.
  std::array<std::uint8_t, 18> notice{1, 0, 0, 0, 0, 0, 0, 0, 1};
  notice[16] = notice[17] = static_cast<std::uint8_t>((1 << fabric.size()) - 1);
  co_await fabric.send(kDown, 1, message_in(notice), soon(fabric));
  co_await fabric.send(kDown, 1, message_in(record), soon(fabric));
}

// Some go on with the ring and some without it: they come together in what follows and lose nobody
// else.
TEST_P(SurvivorsOfPeers, MakeAMeanWithoutTheRootThatDiesBetweenItsAnswers) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  run_all_but(0, [&](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 0) {
      co_await agree_with_rank_1_alone(fabric);
      co_await world().die(fabric);
    }
    Survivors survivors(fabric, kUp, kDown, kRing);
    const auto limit = [&] { return fabric.loop().now() + 4s; };
    const auto values = fabric.allocate(kLong);
    for (int call = 0; call < 2; ++call) {
      set(values->span(), fabric.rank());
      const int taken = co_await survivors.mean(values->span(), limit());
      require(taken == fabric.size() - 1, fmt::format("{} contributed", taken));
      check_mean(values->span(), ranks_without(fabric.size(), 0));
    }
    require(survivors.lost() == std::vector<int>{0}, "others were lost");
    require(!survivors.left_behind(), "a healthy one was left behind");
  });
}

// It has agreed to the ring, and dies in it: the others make the mean of what they brought.
TEST_P(SurvivorsOfPeers, MakeAMeanWithoutOneThatDiesInTheRing) {
  if (!world().die) GTEST_SKIP() << kAllDie;
  const int dead = size() - 1;
  run_all_but(dead, [&, dead](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, kUp, kDown, kRing);
    const auto limit = [&] { return fabric.loop().now() + 6s; };
    if (fabric.rank() == dead) {
      std::array<std::uint64_t, 2> no_trouble{};
      const Merge merge = [](std::span<std::byte>, std::span<const std::byte>) {};
      co_await survivors.combine(message_in(no_trouble), merge, limit());
      co_await world().die(fabric);
    }
    const std::size_t count = 100000;
    const auto values = fabric.allocate(count);
    for (int call = 0; call < 2; ++call) {
      set(values->span(), fabric.rank());
      const int taken = co_await survivors.mean(values->span(), limit());
      require(taken == fabric.size() - 1, std::to_string(taken) + " contributed");
      check_mean(values->span(), ranks_without(fabric.size(), dead));
    }
    require(survivors.lost() == std::vector<int>{dead}, "others were lost");
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

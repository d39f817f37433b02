// The parts of gossip by themselves: when averagings are due, how x and x̃ mix, what tables know.
#include <gtest/gtest.h>

#include <cmath>

#include "core/packed.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "strategy/gossip/averaging_clock.h"
#include "strategy/gossip/expectation.h"
#include "strategy/gossip/gossip_plan.h"
#include "strategy/gossip/live_model.h"
#include "strategy/gossip/tally.h"

namespace skein {
namespace {

GossipOptions acid_options(const std::map<std::string, std::string>& given = {}) {
  OptionReader reader("acid", given);
  return {reader, true};
}

using namespace std::chrono_literals;

Time at(Duration time) { return Time() + time; }

TEST(AveragingClock, KeepsItsRateInGradientsWhateverTheyTake) {
  for (const auto schedule : {AveragingClock::Schedule::poisson, AveragingClock::Schedule::fixed}) {
    AveragingClock clock(0.5, schedule, Rng(3));
    Time now{};
    for (int step = 0; step < 4000; ++step) {
      clock.step_begins(now);
      const Duration taken = step % 2 == 0 ? 10ms : 70ms;
      now += taken;
      clock.step_ends(taken);
    }
    EXPECT_NEAR(static_cast<double>(clock.due(now)), 2000, 100);
  }
}

TEST(AveragingClock, NothingIsDueBeyondTheEndOfAStepThatTakesLong) {
  AveragingClock clock(1, AveragingClock::Schedule::fixed, Rng(3));
  clock.step_begins(at(0ms));
  EXPECT_EQ(clock.next(), kNever) << "nobody knows yet how long a gradient takes";
  clock.step_ends(10ms);
  EXPECT_EQ(clock.due(at(10ms)), 1);
  clock.step_begins(at(10ms));
  EXPECT_EQ(clock.due(clock.next() - 10us), 1);
  EXPECT_EQ(clock.due(clock.next()), 2) << "where a timer would wake, it is due";
  EXPECT_EQ(clock.due(at(10s)), 2);
  EXPECT_EQ(clock.next(), kNever);
}

TEST(Expectation, LearnsWhatIsOrdinary) {
  Expectation expectation(1s, 20ms, 60s);
  EXPECT_EQ(expectation.limit(), 1s);
  for (int i = 0; i < 50; ++i) expectation.saw(100ms + 10ms * (i % 2));
  EXPECT_GT(expectation.limit(), 120ms);
  EXPECT_LT(expectation.limit(), 200ms);
  for (int i = 0; i < 50; ++i) expectation.saw(1ms);
  EXPECT_EQ(expectation.limit(), 20ms);
  for (int i = 0; i < 50; ++i) expectation.saw(1000s);
  EXPECT_EQ(expectation.limit(), 60s);
}

// While a worker evaluates, say, its model is what it was, whatever the time.
TEST(LiveModel, MixesNothingWhileItIsPaused) {
  const auto end = [](Duration pause) {
    Arena arena({{"a", 16}}, allocate_on_heap);
    LiveModel model(arena, 0.3, 2);
    model.start(at(0ms));
    model.set_seconds_per_gradient(2);
    const auto memory = allocate_on_heap(16), zero = allocate_on_heap(16);
    fill(memory->span(), 4);
    model.average(at(1s), 0, memory->span(), zero->span());
    model.pause(at(2s));
    fill(memory->span(), 1);  // an averaging that was late comes in the pause
    model.average(at(2s) + pause / 2, 0, memory->span(), zero->span());
    model.go_on(at(2s) + pause);
    model.go_on(at(2s) + 3 * pause);  // it goes on already
    const auto copied = allocate_on_heap(16);
    model.copy_to(copied->span(), at(3s) + pause);
    return std::pair{copied->span().host()[0], arena.plane("x~").host()[0]};
  };
  EXPECT_EQ(end(0s), end(100s));
  EXPECT_NE(end(0s).first, end(0s).second) << "there is nothing to mix";
}

// x ← ½(1+e) x + ½(1−e) x̃ with e = exp(−2ηΔ), against the formula in double precision.
TEST(LiveModel, MixesAsTheEquationsSay) {
  const double eta = 0.3;
  Arena arena({{"a", 16}}, allocate_on_heap);
  for (float& x : arena.parameters().host()) x = 1;
  LiveModel model(arena, eta, 2);
  model.start(at(0ms));
  const auto memory = allocate_on_heap(16);
  for (float& d : memory->span().host()) d = 4;
  const auto zero = allocate_on_heap(16);
  model.average(at(1s), 0, memory->span(), zero->span());  // time stands still: x = 3, x̃ = 9
  EXPECT_EQ(model.x().host()[0], 3);
  EXPECT_EQ(arena.plane("x~").host()[0], 9);
  model.set_seconds_per_gradient(2);
  const double e = std::exp(-2 * eta * 1.5);
  const auto seen = allocate_on_heap(16);
  model.read(seen->span(), at(3s));
  const auto copied = allocate_on_heap(16);
  model.copy_to(copied->span(), at(3s));
  EXPECT_EQ(copied->span().host()[0], model.x().host()[0]);
  EXPECT_NEAR(model.x().host()[0], 0.5 * (1 + e) * 3 + 0.5 * (1 - e) * 9, 1e-5);
  EXPECT_NEAR(arena.plane("x~").host()[0], 0.5 * (1 - e) * 3 + 0.5 * (1 + e) * 9, 1e-5);
  EXPECT_NEAR(seen->span().host()[0], model.x().host()[0], 1e-6);
  EXPECT_NEAR(model.x().host()[0] + arena.plane("x~").host()[0], 12, 1e-5);
}

// However long a stall: as after five gradients.
TEST(LiveModel, AStallDoesNotWipeOutTheMomentum) {
  Arena arena({{"a", 16}}, allocate_on_heap);
  LiveModel model(arena, 0.01, 2);
  model.start(at(0ms));
  model.set_seconds_per_gradient(1);
  for (float& x : arena.plane("x~").host()) x = 2;
  model.copy_to(arena.parameters(), at(1000s));
  EXPECT_NEAR(model.x().host()[0], 1 - std::exp(-2 * 0.01 * 5), 1e-5);
}

TEST(LiveModel, AnUpdateChangesBothAlike) {
  for (const bool whole : {false, true}) {
    Arena arena({{"a", 40000}}, allocate_on_heap);
    LiveModel model(arena, 0.5, 2);
    model.start(at(0ms));
    int pieces = 0;
    model.step(at(0ms), whole, [&](Range range) {
      ++pieces;
      for (std::size_t i = range.offset; i < range.end(); ++i)
        model.x().host()[i] -= static_cast<float>(i % 9);
    });
    EXPECT_EQ(pieces == 1, whole);
    for (const std::size_t i : {0u, 5u, 16384u, 39999u}) {
      EXPECT_EQ(model.x().host()[i], -static_cast<float>(i % 9));
      EXPECT_EQ(arena.plane("x~").host()[i], model.x().host()[i]);
      EXPECT_EQ(arena.parameters().host()[i], model.x().host()[i]);
    }
  }
}

// However the model is cut into parts.
TEST(LiveModel, GivesTheSameBitsOnAnyNumberOfThreads) {
  const std::size_t size = 3 * LiveModel::kBlock + 12345;
  const float alpha = 1.7F;
  const auto run = [&](int threads) {
    set_kernel_threads(threads);
    Arena arena({{"a", size}}, allocate_on_heap);
    const Span p = arena.parameters();
    for (std::size_t i = 0; i < p.count; ++i) p.host()[i] = static_cast<float>(i % 1001) * 0.37F;
    LiveModel model(arena, 0.3, static_cast<double>(alpha));
    model.start(at(0ms));
    model.set_seconds_per_gradient(1);
    const auto theirs = allocate_on_heap(LiveModel::kBlock), mine = allocate_on_heap(size);
    for (std::size_t i = 0; i < LiveModel::kBlock; ++i)
      theirs->span().host()[i] = static_cast<float>(i % 77);
    model.average(at(100ms), LiveModel::kBlock, theirs->span(),
                  mine->span().at({0, LiveModel::kBlock}));
    EXPECT_TRUE(model.averaged());
    model.step(at(700ms), false, [&](Range range) { scale(model.x().at(range), 0.9F); });
    EXPECT_FALSE(model.averaged());
    std::vector<float> all(arena.plane("x~").host().begin(), arena.plane("x~").host().end());
    all.insert(all.end(), p.host().begin(), p.host().end());
    model.copy_to(p, at(900ms));
    all.insert(all.end(), p.host().begin(), p.host().end());
    return all;
  };
  const auto one = run(1), three = run(3);
  set_kernel_threads(1);
  EXPECT_EQ(one, three);
}

// Numbers that a float could not hold, and bits that would be no number.
TEST(Packed, AStructComesBackByteForByte) {
  struct Letter {
    std::int64_t large, negative;
    std::uint32_t odd, bits;
  };
  std::vector<std::byte> message(sizeof(Letter));
  pack<Letter>(message, {INT64_MAX - 1, -3, 16777217, 0x7fa00001});
  const auto back = unpack<Letter>(message);
  EXPECT_EQ(back.large, INT64_MAX - 1);
  EXPECT_EQ(back.negative, -3);
  EXPECT_EQ(back.odd, 16777217);
  EXPECT_EQ(back.bits, 0x7fa00001);
}

TEST(Tally, KnowsTheLargestTotalThatItHasHeard) {
  Tally tally;
  tally.own = 5;
  EXPECT_EQ(tally.known(), 5);
  tally.hear((std::int64_t{1} << 40) + 12345, false);
  tally.hear(7, true);
  EXPECT_EQ(tally.known(), (std::int64_t{1} << 40) + 12345);
  EXPECT_TRUE(tally.stop);
}

TEST(GossipPlan, KnowsWhenTheRestFallsApart) {
  const GossipPlan ring(acid_options(), true, 8, 1);
  std::vector<bool> lost(8);
  EXPECT_TRUE(ring.connected_without(lost));
  lost[0] = true;
  EXPECT_TRUE(ring.connected_without(lost));
  lost[4] = true;
  EXPECT_FALSE(ring.connected_without(lost));
}

TEST(GossipPlan, ThoseAroundTheLostAverageInTheirPlace) {
  using Ranks = std::vector<int>;
  const GossipPlan ring(acid_options(), true, 8, 1);
  std::vector<bool> lost(8);
  lost[2] = true;
  EXPECT_EQ(ring.neighbours_without(1, lost), (Ranks{0, 3}));
  EXPECT_EQ(ring.neighbours_without(5, lost), (Ranks{4, 6}));
  lost[3] = lost[0] = true;
  EXPECT_EQ(ring.neighbours_without(1, lost), (Ranks{4, 7}));
  lost.assign(8, true);
  lost[6] = lost[1] = false;
  EXPECT_EQ(ring.neighbours_without(1, lost), (Ranks{6}));
  lost[6] = true;
  EXPECT_EQ(ring.neighbours_without(1, lost), (Ranks{}));

  const GossipPlan star(acid_options({{"topology", "star"}}), true, 5, 1);
  std::vector<bool> centre(5);
  centre[0] = true;
  EXPECT_EQ(star.neighbours_without(1, centre), (Ranks{2, 4})) << "a ring of the leaves";
  EXPECT_EQ(star.neighbours_without(3, centre), (Ranks{2, 4}));
}

}  // namespace
}  // namespace skein

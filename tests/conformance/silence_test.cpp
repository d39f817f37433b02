// How long a peer is waited for: as long as it makes progress, and no longer than the limit after
// its last.
#include <gtest/gtest.h>

#include "conformance/harness.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSilence = 400ms;
const Limit kLimit = Limit::silence(kSilence);

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

Task<> make_steps(Fabric& fabric, Duration time) {
  for (const Time end = fabric.loop().now() + time; fabric.loop().now() < end;) {
    co_await fabric.loop().sleep_for(kSilence / 8);
    fabric.progressed();
  }
}

class SilenceOn : public testing::TestWithParam<World> {
 protected:
  void run(int size, const Body& body) { expect_ok(GetParam(), size, body); }
};

TEST_P(SilenceOn, AWorkerThatMakesStepsIsWaitedFor) {
  run(2, [](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(10000);
    if (fabric.rank() == 1) co_await make_steps(fabric, 4 * kSilence);
    co_await fabric.all_reduce(0, memory->span(), kLimit);
  });
}

// Rank 2 waits for rank 1, which says nothing because it waits for rank 0.
TEST_P(SilenceOn, SignsArePassedOnByThoseWhoWaitThemselves) {
  run(3, [](Fabric& fabric) -> Task<> {
    float value = 1;
    if (fabric.rank() == 0) co_await make_steps(fabric, 4 * kSilence);
    if (fabric.rank() > 0) co_await fabric.receive(0, fabric.rank() - 1, {&value, 1}, kLimit);
    if (fabric.rank() < 2) co_await fabric.send(0, fabric.rank() + 1, {&value, 1}, kLimit);
  });
}

TEST_P(SilenceOn, OneThatStandsStillIsGivenUp) {
  run(2, [](Fabric& fabric) -> Task<> {
    float value = 1;
    if (fabric.rank() == 1) {
      co_await make_steps(fabric, kSilence);
      co_await fabric.loop().sleep_for(10 * kSilence);  // alive, but it does nothing
      co_return;
    }
    const Time begin = fabric.loop().now();
    int peer = -1;
    try {
      co_await fabric.receive(0, 1, {&value, 1}, kLimit);
    } catch (const IoError& error) {
      peer = error.peer();
    }
    const Duration waited = fabric.loop().now() - begin;
    require(peer == 1, "names " + std::to_string(peer));
    require(waited > 3 * kSilence / 2 && waited < 8 * kSilence,
            "waited " + std::to_string(seconds(waited)) + " s");
  });
}

// Their waiting alone is no progress, also when each hears of the other's.
TEST_P(SilenceOn, WorkersThatWaitForEachOtherDoNotDoSoForEver) {
  run(3, [](Fabric& fabric) -> Task<> {
    float value = 1;
    const Time begin = fabric.loop().now();
    bool ended = false;
    try {
      co_await fabric.receive(0, (fabric.rank() + 1) % 3, {&value, 1}, kLimit);
    } catch (const IoError&) {
      ended = true;
    }
    require(ended, "received something");
    require(fabric.loop().now() - begin < 10 * kSilence, "ended too late");
  });
}

// Each of many operations that wait for their turn has its own time.
TEST_P(SilenceOn, OperationsThatQueueOutlastTheLimitTogether) {
  run(2, [](Fabric& fabric) -> Task<> {
    std::vector<float> values(20, 1);
    std::vector<Task<>> all;
    for (float& value : values) all.push_back(fabric.broadcast(0, {&value, 1}, 1, kLimit));
    if (fabric.rank() == 0) {
      co_await all_of(fabric.loop(), std::move(all));
      co_return;
    }
    for (auto& each : all) {
      co_await fabric.loop().sleep_for(kSilence / 4);
      co_await each;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, SilenceOn, testing::ValuesIn(worlds()),
                         [](const auto& info) { return info.param.name; });

// The limit on the workers of a host is one that the fabric keeps.
TEST(ManyRanks, TwoHundredAndFiftySixWorkersOfAHostWork) {
  static_assert(kMostWorkersOfAHost >= 256);
  const World local = worlds().front();
  expect_ok(local, 256, [](Fabric& fabric) -> Task<> {
    const auto memory = fabric.allocate(5000);
    for (float& x : floats_of(memory->span())) x = 1;
    co_await fabric.all_reduce(0, memory->span(), Limit::silence(60s));
    for (const float x : floats_of(memory->span())) require(x == 256, "another sum");
    const int next = (fabric.rank() + 1) % fabric.size();
    const int previous = (fabric.rank() + fabric.size() - 1) % fabric.size();
    float mine = static_cast<float>(fabric.rank()), theirs = -1;
    std::vector<Task<>> both;
    both.push_back(fabric.send(1, next, {&mine, 1}, Limit::silence(60s)));
    both.push_back(fabric.receive(1, previous, {&theirs, 1}, Limit::silence(60s)));
    co_await all_of(fabric.loop(), std::move(both));
    require(theirs == static_cast<float>(previous), "another message");
  });
}

}  // namespace
}  // namespace skein::conformance

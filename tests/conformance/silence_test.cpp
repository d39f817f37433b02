// How long a peer is waited for: as long as it makes progress, and no longer than the limit after
// its last.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/timed.h"
#include "core/packed.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

// To begin with: on a busy machine it becomes longer.
constexpr Duration kSilence = 400ms;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

Task<> make_steps(Fabric& fabric, Duration silence, Duration time) {
  for (const Time end = fabric.loop().now() + time; fabric.loop().now() < end;) {
    co_await fabric.loop().sleep_for(silence / 8);
    fabric.progressed();
  }
}

class SilenceOn : public testing::TestWithParam<World> {
 protected:
  void run(int size, const TimedBody& body) { expect_ok_in_time(GetParam(), size, kSilence, body); }
};

TEST_P(SilenceOn, AWorkerThatMakesStepsIsWaitedFor) {
  run(2, [](Fabric& fabric, Duration silence) -> Task<> {
    const auto memory = fabric.allocate(10000);
    if (fabric.rank() == 1) co_await make_steps(fabric, silence, 4 * silence);
    co_await fabric.all_reduce(0, memory->span(), Limit::silence(silence));
  });
}

// Rank 2 waits for rank 1, which says nothing because it waits for rank 0.
TEST_P(SilenceOn, SignsArePassedOnByThoseWhoWaitThemselves) {
  run(3, [](Fabric& fabric, Duration silence) -> Task<> {
    const Limit limit = Limit::silence(silence);
    float value = 1;
    if (fabric.rank() == 0) co_await make_steps(fabric, silence, 4 * silence);
    if (fabric.rank() > 0) co_await fabric.receive(0, fabric.rank() - 1, {&value, 1}, limit);
    if (fabric.rank() < 2) co_await fabric.send(0, fabric.rank() + 1, {&value, 1}, limit);
  });
}

TEST_P(SilenceOn, OneThatStandsStillIsGivenUp) {
  run(2, [](Fabric& fabric, Duration silence) -> Task<> {
    float value = 1;
    if (fabric.rank() == 1) {
      co_await make_steps(fabric, silence, silence);
      co_await fabric.loop().sleep_for(10 * silence);  // alive, but it does nothing
      co_return;
    }
    const Time begin = fabric.loop().now();
    int peer = -1;
    try {
      co_await fabric.receive(0, 1, {&value, 1}, Limit::silence(silence));
    } catch (const IoError& error) {
      peer = error.peer();
    }
    const Duration waited = fabric.loop().now() - begin;
    require(peer == 1, "names " + std::to_string(peer));
    require(waited > 3 * silence / 2 && waited < 8 * silence,
            "waited " + std::to_string(seconds(waited)) + " s");
  });
}

// Their waiting alone is no progress, also when each hears of the other's.
TEST_P(SilenceOn, WorkersThatWaitForEachOtherDoNotDoSoForEver) {
  run(3, [](Fabric& fabric, Duration silence) -> Task<> {
    float value = 1;
    const Time begin = fabric.loop().now();
    bool ended = false;
    try {
      co_await fabric.receive(0, (fabric.rank() + 1) % 3, {&value, 1}, Limit::silence(silence));
    } catch (const IoError&) {
      ended = true;
    }
    require(ended, "received something");
    require(fabric.loop().now() - begin < 10 * silence, "ended too late");
  });
}

// Each of many operations that wait for their turn has its own time.
TEST_P(SilenceOn, OperationsThatQueueOutlastTheLimitTogether) {
  run(2, [](Fabric& fabric, Duration silence) -> Task<> {
    std::vector<float> values(20, 1);
    std::vector<Task<>> all;
    for (float& value : values)
      all.push_back(fabric.broadcast(0, {&value, 1}, 1, Limit::silence(silence)));
    if (fabric.rank() == 0) {
      co_await all_of(fabric.loop(), std::move(all));
      co_return;
    }
    for (auto& each : all) {
      co_await fabric.loop().sleep_for(silence / 4);
      co_await each;
    }
  });
}

// Stops processes for some time; what does so is a process of its own.
pid_t stop_for(const std::vector<pid_t>& processes, Duration time) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (const pid_t each : processes) ::kill(each, SIGSTOP);
  ::usleep(static_cast<useconds_t>(time / 1us));
  for (const pid_t each : processes) ::kill(each, SIGCONT);
  ::_exit(0);
}

// As `docker pause` does, or a system that suspends jobs: time in which a worker did not run itself
// is not the other's silence. Rank 1 comes to it as late as it may.
TEST_P(SilenceOn, WorkersThatAreStoppedForLongerTogetherGoOn) {
  if (GetParam().name.starts_with("sim")) GTEST_SKIP() << "all ranks are in this process";
  if (!GetParam().die) GTEST_SKIP() << "the launcher would be told";
  expect_ok_in_time(GetParam(), 2, 2 * kSilence, [](Fabric& fabric, Duration silence) -> Task<> {
    const Limit limit = Limit::silence(silence);
    float value = 1;
    std::int64_t own = ::getpid(), other = 0;
    const int peer = 1 - fabric.rank();
    co_await fabric.exchange(1, peer, message_in(own), message_in(other), limit);
    const Time begin = fabric.loop().now();
    if (fabric.rank() == 0) {
      const pid_t child =
          stop_for({static_cast<pid_t>(own), static_cast<pid_t>(other)}, 3 * silence);
      co_await fabric.receive(0, 1, {&value, 1}, limit);
      int status = 0;
      ::waitpid(child, &status, 0);
    } else {
      while (fabric.loop().now() - begin < 3 * silence) co_await fabric.loop().sleep_for(1ms);
      co_await fabric.loop().sleep_for(silence / 2);
      co_await fabric.send(0, 0, {&value, 1}, limit);
    }
    require(fabric.loop().now() - begin > 3 * silence, "nobody was stopped");
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

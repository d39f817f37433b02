// The nccl fabric's own promises, with a stand-in for NCCL: one order of launches, nothing that
// waits for a device, and an end in bounded time whatever goes wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "conformance/nccl_worlds.h"
#include "core/rng.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kCount = 100003, kEven = 64000;

Deadline in(Fabric& fabric, Duration time) { return fabric.loop().now() + time; }
Deadline soon(Fabric& fabric) { return in(fabric, 200s); }

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

toy::ToyQueue& queue_of(Fabric& fabric) {
  return dynamic_cast<toy::ToyQueue&>(*fabric.loop().queue());
}

bool all_are(Span span, float value) {
  return std::ranges::all_of(floats_of(span), [=](float each) { return each == value; });
}

void expect_all_ok(const std::vector<Outcome>& outcomes, int dead = -1) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (static_cast<int>(r) == dead)
      EXPECT_EQ(outcomes[r].signal, SIGKILL);
    else
      EXPECT_TRUE(outcomes[r].ok) << "rank " << r << ": " << outcomes[r].error;
  }
}

void expect_io_errors(const std::vector<Outcome>& outcomes, const std::string& part,
                      int but_for = -1) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (static_cast<int>(r) == but_for) continue;
    EXPECT_TRUE(outcomes[r].io_error) << "rank " << r << ": " << outcomes[r].error;
    EXPECT_NE(outcomes[r].error.find(part), std::string::npos)
        << "rank " << r << ": " << outcomes[r].error;
  }
}

// Runs `all_reduce` until one throws, or its queue is stuck: then waits for that as a program
// would.
Task<> sum_until_it_fails(Fabric& fabric, Span span, Duration limit, Duration bound) {
  const Time begin = fabric.loop().now();
  try {
    for (;;) {
      co_await fabric.all_reduce(0, span, in(fabric, limit));
      co_await until_reached(fabric.loop(), queue_of(fabric).record());
    }
  } catch (const IoError&) {
    if (fabric.loop().now() - begin > bound) throw Error("noticed too late");
    queue_of(fabric).finish();
    throw;
  }
}

class Nccl : public testing::TestWithParam<int> {};

TEST_P(Nccl, CarriesCollectivesOnDevicesAndNothingElse) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    require(fabric.name() == "nccl", fabric.name());
    require(fabric.why_staged().starts_with("messages between two workers"), fabric.why_staged());
    const auto device = fabric.allocate(kCount), host = allocate_on_heap(kCount);
    co_await fabric.all_reduce(0, host->span(), soon(fabric));
    co_await fabric.barrier(0, soon(fabric));
    require(toy::nccl_groups() == 0, "NCCL was asked for memory of the host");
    co_await fabric.all_reduce(0, device->span(), soon(fabric));
    require(toy::nccl_groups() == 2, "a sum is not a reduce-scatter and an all-gather");
    co_await fabric.broadcast(0, device->span(), 1, soon(fabric));
    require(toy::nccl_groups() == 3, "a broadcast that is none of NCCL's");
  }));
}

// Each rank starts its channels in another order, and none waits for another before it does.
TEST_P(Nccl, RanksThatStartInOtherOrdersLaunchInOne) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    Rng rng(static_cast<std::uint64_t>(fabric.rank()) + 1);
    for (int round = 0; round < 10; ++round) {
      std::vector<std::unique_ptr<Memory>> buffers;
      std::vector<Task<>> tasks;
      for (int channel = 0; channel < 6; ++channel) {
        buffers.push_back(fabric.allocate(channel % 2 == 0 ? kEven : 1000));
        fill(buffers.back()->span(), static_cast<float>(channel + 1));
      }
      for (const std::uint32_t channel : rng.permutation(6))
        tasks.push_back(
            fabric.all_reduce(static_cast<int>(channel), buffers[channel]->span(), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(tasks));
      for (std::size_t channel = 0; channel < 6; ++channel)
        require(all_are(buffers[channel]->span(),
                        static_cast<float>(channel + 1) * static_cast<float>(fabric.size())),
                "a wrong sum");
    }
  }));
}

// One waits for its first before it starts its second, another the other way round.
TEST_P(Nccl, AnOperationThatNotAllHaveComeToKeepsNobodyFromAnother) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto one = fabric.allocate(kCount), two = fabric.allocate(kCount);
    fill(one->span(), 1);
    fill(two->span(), 2);
    const auto size = static_cast<float>(fabric.size());
    if (fabric.rank() == 0) {
      std::vector<Task<>> both;
      both.push_back(fabric.all_reduce(0, one->span(), soon(fabric)));
      both.push_back(fabric.all_reduce(1, two->span(), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(both));
    } else {
      co_await fabric.all_reduce(1, two->span(), soon(fabric));
      require(all_are(two->span(), 2 * size), "a wrong sum");
      co_await fabric.all_reduce(0, one->span(), soon(fabric));
    }
    require(all_are(one->span(), size) && all_are(two->span(), 2 * size), "a wrong sum");
  }));
}

TEST_P(Nccl, ExchangesAndCollectivesShareOneOrder) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    const int peer = fabric.rank() ^ 1;
    const auto out = fabric.allocate(kCount), into = fabric.allocate(kCount),
               sum = fabric.allocate(kEven);
    for (int round = 0; round < 10; ++round) {
      const int before = toy::nccl_groups();
      fill(out->span(), static_cast<float>(100 * round + fabric.rank()));
      fill(sum->span(), 1);
      std::vector<Task<>> both;
      const bool first = (round + fabric.rank()) % 2 == 0;
      if (first) both.push_back(fabric.all_reduce(0, sum->span(), soon(fabric)));
      both.push_back(fabric.exchange(8, peer, out->span(), into->span(), soon(fabric)));
      if (!first) both.push_back(fabric.all_reduce(0, sum->span(), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(both));
      fill(out->span(), -1);
      require(toy::nccl_groups() == before + 3, "not by NCCL");
      require(all_are(into->span(), static_cast<float>(100 * round + peer)), "another's values");
      require(all_are(sum->span(), static_cast<float>(fabric.size())), "a wrong sum");
    }
    co_await fabric.barrier(3, soon(fabric));  // rank 0 gives numbers to all
  }));
}

TEST_P(Nccl, ExchangesFollowCollectivesOnTheirChannel) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    const int peer = fabric.rank() ^ 1;
    const auto out = fabric.allocate(kCount), into = fabric.allocate(kCount);
    for (int round = 0; round < 10; ++round) {
      fill(out->span(), 1);
      co_await fabric.all_reduce(3, out->span(), soon(fabric));
      co_await fabric.broadcast(3, out->span(), 0, soon(fabric));
      co_await fabric.barrier(3, soon(fabric));
      fill(out->span(), static_cast<float>(100 * round + fabric.rank()));
      co_await fabric.exchange(3, peer, out->span(), into->span(), soon(fabric));
      require(all_are(into->span(), static_cast<float>(100 * round + peer)), "another's values");
    }
    co_await fabric.barrier(3, soon(fabric));  // rank 0 gives numbers to all
  }));
}

// Without rank 0 there are no numbers.
// Ranks 2 and 3 exchange until they notice that rank 0 has left, `later` than rank 1.
void expect_exchanges_end_without_rank_zero(Duration later) {
  const auto outcomes = run_on_nccl(4, [later](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 0) co_await fabric.loop().sleep_for(later);
    if (fabric.rank() < 2) co_return;
    const auto out = fabric.allocate(kCount), into = fabric.allocate(kCount);
    const Time begin = fabric.loop().now();
    try {
      for (;;)
        co_await fabric.exchange(3, fabric.rank() ^ 1, out->span(), into->span(), soon(fabric));
    } catch (const IoError& error) {
      require(error.peer() == 0, "another rank is named");
      require(fabric.loop().now() - begin < 100s, "noticed too late");
    }
  });
  expect_all_ok(outcomes);
}

TEST(NcclFaults, AnExchangeDoesNotWaitForARankZeroThatHasLeft) {
  expect_exchanges_end_without_rank_zero(0s);
}

// The others hear of rank 1's end from rank 0 before rank 0 leaves itself.
TEST(NcclFaults, ExchangeDoesNotWaitForARankZeroThatLeavesSecond) {
  expect_exchanges_end_without_rank_zero(500ms);
}

TEST_P(Nccl, TheHostIsAhead) {
  expect_all_ok(run_on_nccl(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(kCount);
    const auto open = std::make_shared<std::atomic<bool>>(false);
    queue_of(fabric).put([open] {
      for (int i = 0; i < 200000 && !*open; ++i) std::this_thread::sleep_for(1ms);
    });
    const Mark behind = queue_of(fabric).record();
    fill(buffer->span(), 1);
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
    co_await fabric.reduce_scatter(0, buffer->span(), soon(fabric));
    co_await fabric.all_gather(0, buffer->span(), soon(fabric));
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric), Wire::bf16);
    const auto next = fabric.allocate(kCount);
    copy(next->span(), buffer->span());
    fill(buffer->span(), -1);
    require(!reached(behind), "it waited for the device");
    *open = true;
    const auto size = static_cast<float>(fabric.size());
    require(all_are(next->span(), size * size * size), "a wrong sum");
  }));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(2, 4), testing::PrintToStringParamName());

// The rank whose queue does not come keeps the others' waiting: they are let go when it dies.
TEST(NcclFaults, AQueueThatWaitsForADeadWorkerIsLetGo) {
  const auto outcomes = run_on_nccl(3, [](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(kCount);
    if (fabric.rank() == 1) queue_of(fabric).put([] { std::this_thread::sleep_for(1000s); });
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
    co_await fabric.barrier(1, soon(fabric));
    if (fabric.rank() == 1) co_await die(fabric);
    const Time start = fabric.loop().now();
    const Mark behind = queue_of(fabric).record();
    require(!reached(behind), "nothing was waited for");
    co_await until_reached(fabric.loop(), behind);
    require(fabric.loop().now() - start < 100s, "let go too late");
    co_await fabric.all_reduce(2, buffer->span(), soon(fabric));
  });
  expect_io_errors(outcomes, "rank 1", 1);
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
}

// What a device does has its time from when the device comes to it.
TEST(NcclFaults, WhatIsLaunchedEndsInTimeOrIsAborted) {
  const auto outcomes = run_on_nccl(
      3,
      [](Fabric& fabric) -> Task<> {
        const auto buffer = fabric.allocate(kCount);
        co_await sum_until_it_fails(fabric, buffer->span(), 700ms, 100s);
      },
      [](toy::ToyQueue&, int rank) {
        if (rank == 2) toy::nccl_trouble().never_launches = 3;
      });
  expect_io_errors(outcomes, "of its start");
}

TEST(NcclFaults, AQueueThatComesLateHasAllItsTime) {
  expect_all_ok(run_on_nccl(2, [](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(kEven);
    fill(buffer->span(), 1);
    if (fabric.rank() == 0)
      for (int i = 0; i < 3; ++i) queue_of(fabric).put([] { std::this_thread::sleep_for(1200ms); });
    if (fabric.rank() == 1) queue_of(fabric).put([] { std::this_thread::sleep_for(3600ms); });
    co_await fabric.all_reduce(0, buffer->span(), in(fabric, 3s));
    co_await until_reached(fabric.loop(), queue_of(fabric).record());
    require(all_are(buffer->span(), 2), "a wrong sum");
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
  }));
}

TEST(NcclFaults, AnErrorOfNcclEndsItOnAllRanks) {
  const auto outcomes = run_on_nccl(
      4,
      [](Fabric& fabric) -> Task<> {
        const auto buffer = fabric.allocate(kCount);
        co_await sum_until_it_fails(fabric, buffer->span(), 60s, 100s);
      },
      [](toy::ToyQueue&, int rank) {
        if (rank == 2) toy::nccl_trouble().error_after = 5;
      });
  expect_io_errors(outcomes, "rank 2: ");
  expect_io_errors(outcomes, "a link of the toy is down");
}

// The thread that aborts is left behind.
TEST(NcclFaults, AnAbortThatHangsKeepsNobodyWaiting) {
  const auto outcomes = run_on_nccl(
      3,
      [](Fabric& fabric) -> Task<> {
        const auto buffer = fabric.allocate(kCount);
        if (fabric.rank() == 0) co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
        if (fabric.rank() == 0) co_await die(fabric);
        co_await sum_until_it_fails(fabric, buffer->span(), 60s, 100s);
      },
      [](toy::ToyQueue&, int) { toy::nccl_trouble().abort_hangs = true; });
  expect_io_errors(outcomes, "rank 0", 0);
}

TEST(NcclFaults, ARankThatNcclDoesNotJoinIsAnErrorOnAll) {
  const auto outcomes = run_on_nccl(
      3,
      [](Fabric& fabric) -> Task<> {
        toy::nccl_trouble().never_joins = fabric.rank() == 1;
        static toy::ToyQueue* const queue = new toy::ToyQueue(1);  // of the process, to its end
        fabric.loop().use(queue);
        co_await fabric.loop().yield();  // from the next turn on
        co_await fabric.meet_on_device(in(fabric, 1s));
      },
      nullptr);
  expect_io_errors(outcomes, "NCCL did not join the ranks");
}

// One gives up what others have launched, or are about to: nobody's queue is stuck, and nobody
// takes what it has for a sum.
TEST(NcclFaults, WhatIsGivenUpInTheMiddleIsNobodysResult) {
  for (int delay_us = 0; delay_us <= 900; delay_us += 100)
    for (int quitter = 0; quitter < 2; ++quitter)
      expect_all_ok(run_on_nccl(3, [=](Fabric& fabric) -> Task<> {
        const auto buffer = fabric.allocate(kCount);
        fill(buffer->span(), 1);
        Job job = fabric.loop().spawn(fabric.all_reduce(0, buffer->span(), in(fabric, 20s)));
        if (fabric.rank() == quitter) {
          co_await fabric.loop().sleep_for(std::chrono::microseconds(delay_us));
          job.abandon();
          fill(buffer->span(), -1000);
        } else {
          bool ended = false;
          try {
            co_await job.join();
            ended = true;
          } catch (const IoError&) {
          }
          co_await until_reached(fabric.loop(), queue_of(fabric).record());
          const auto values = floats_of(buffer->span());
          if (ended && !all_are(buffer->span(), 3)) {
            // Then the next says so.
            bool refused = false;
            try {
              co_await fabric.all_reduce(1, buffer->span(), in(fabric, 5s));
            } catch (const IoError&) {
              refused = true;
            }
            require(refused, "took " + std::to_string(values[0]) + " for a sum");
          }
        }
        co_await fabric.barrier(2, soon(fabric));
        if (fabric.rank() == quitter) require(all_are(buffer->span(), -1000), "written to");
      }));
}

}  // namespace
}  // namespace skein::conformance

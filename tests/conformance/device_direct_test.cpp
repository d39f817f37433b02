// Workers of one host on devices, reading each other's memory where it lies: that they do, that
// nothing is read before it is there or after it has changed, and what comes of those who give up
// or die.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "conformance/forked.h"
#include "core/rng.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "toy/toy_sharing.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSmall = 5000, kLarge = 200003;

Deadline in(Fabric& fabric, Duration time) { return fabric.loop().now() + time; }
Deadline soon(Fabric& fabric) { return in(fabric, 120s); }

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

toy::ToyQueue& queue_of(Fabric& fabric) {
  return dynamic_cast<toy::ToyQueue&>(*fabric.loop().queue());
}

void expect_all_ok(const std::vector<Outcome>& outcomes, int dead = -1) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (static_cast<int>(r) == dead)
      EXPECT_EQ(outcomes[r].signal, SIGKILL);
    else
      EXPECT_TRUE(outcomes[r].ok) << "rank " << r << ": " << outcomes[r].error;
  }
}

bool all_are(Span span, float value) {
  return std::ranges::all_of(floats_of(span), [=](float each) { return each == value; });
}

class Direct : public testing::TestWithParam<int> {};

TEST_P(Direct, HasTheBitsOfTheHost) {
  expect_all_ok(run_on_device(GetParam(), [](Fabric& fabric) -> Task<> {
    require(fabric.why_staged().empty(), fabric.why_staged());
    for (const std::size_t count : {std::size_t{1}, std::size_t{17}, kSmall, kLarge})
      for (const Wire wire : {Wire::f32, Wire::bf16})
        for (int kind = 0; kind < 4; ++kind) {
          const auto device = fabric.allocate(count), host = allocate_on_heap(count);
          Rng rng(static_cast<std::uint64_t>(fabric.rank()) + 7);
          for (float& each : host->span().host()) each = static_cast<float>(rng.normal());
          copy(device->span(), host->span());
          queue_of(fabric).finish();
          for (const Span span : {device->span(), host->span()}) {
            if (kind == 0) co_await fabric.reduce_scatter(0, span, soon(fabric), wire);
            if (kind == 1) co_await fabric.all_gather(0, span, soon(fabric), wire);
            if (kind == 2) co_await fabric.all_reduce(0, span, soon(fabric), wire);
            if (kind == 3) co_await fabric.broadcast(0, span, fabric.size() - 1, soon(fabric));
          }
          const Range part = kind == 0 ? fabric.part(count, fabric.rank()) : Range{0, count};
          require(
              std::ranges::equal(floats_of(device->span().at(part)), host->span().at(part).host()),
              "other bits in collective " + std::to_string(kind) + " of " + std::to_string(count));
        }
    require(fabric.size() == 1 || queue_of(fabric).toy_sharing().opened() > 0, "not direct");
  }));
}

// The queue is far behind: what is put on it next must wait for the peers, and nobody else.
TEST_P(Direct, BuffersAreFreeAtOnceForWhatComesNextOnTheQueue) {
  expect_all_ok(run_on_device(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto size = static_cast<float>(fabric.size());
    const float mine = static_cast<float>(fabric.rank());
    for (const std::size_t count : {kSmall, kLarge}) {
      const auto buffer = fabric.allocate(count);
      std::vector<std::unique_ptr<Memory>> results;
      for (int k = 0; k < 12; ++k) {
        if (k % 4 == fabric.rank() % 4)
          queue_of(fabric).put([] { std::this_thread::sleep_for(5ms); });
        fill(buffer->span(), mine + static_cast<float>(k));
        co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
        results.push_back(fabric.allocate(count));
        copy(results.back()->span(), buffer->span());
        fill(buffer->span(), -1);
      }
      for (int k = 0; k < 12; ++k)
        require(all_are(results[static_cast<std::size_t>(k)]->span(),
                        size * (size - 1) / 2 + size * static_cast<float>(k)),
                "wrong sum in round " + std::to_string(k));
    }
  }));
}

// A barrier on the same channel says that peers are there, not that their queues are.
TEST_P(Direct, WhatIsDoneOnTheHostInBetweenChangesNothing) {
  expect_all_ok(run_on_device(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto size = static_cast<float>(fabric.size());
    std::vector<std::unique_ptr<Memory>> sums;
    for (int k = 0; k < 6; ++k) {
      if (fabric.rank() == fabric.size() - 1)
        queue_of(fabric).put([] { std::this_thread::sleep_for(5ms); });
      sums.push_back(fabric.allocate(kSmall));
      fill(sums.back()->span(), static_cast<float>(k + 1));
      co_await fabric.all_reduce(0, sums.back()->span(), soon(fabric));
      co_await fabric.barrier(0, soon(fabric));
    }
    for (int k = 0; k < 6; ++k)
      require(all_are(sums[static_cast<std::size_t>(k)]->span(), size * static_cast<float>(k + 1)),
              "wrong sum in round " + std::to_string(k));
  }));
}

// Nobody waits for a device: all operations have ended long before the queues have done anything.
TEST_P(Direct, TheHostIsAhead) {
  expect_all_ok(run_on_device(GetParam(), [](Fabric& fabric) -> Task<> {
    const auto small = fabric.allocate(kSmall), large = fabric.allocate(kLarge);
    const auto open = std::make_shared<std::atomic<bool>>(false);
    queue_of(fabric).put([open] {
      for (int i = 0; i < 200000 && !*open; ++i) std::this_thread::sleep_for(1ms);
    });
    const Mark behind = queue_of(fabric).record();
    fill(small->span(), 1);
    fill(large->span(), 1);
    co_await fabric.all_reduce(0, small->span(), soon(fabric));
    co_await fabric.all_reduce(0, large->span(), soon(fabric));
    co_await fabric.reduce_scatter(0, large->span(), soon(fabric));
    co_await fabric.all_gather(0, large->span(), soon(fabric));
    co_await fabric.all_reduce(0, large->span(), soon(fabric), Wire::bf16);
    require(!reached(behind), "it waited for the device");
    *open = true;
    const auto size = static_cast<float>(fabric.size());
    require(all_are(small->span(), size) && all_are(large->span(), size * size * size),
            "wrong sum");
  }));
}

INSTANTIATE_TEST_SUITE_P(OnADevice, Direct, testing::Values(1, 2, 3, 4, 8));

// Otherwise the tests above would not show anything.
TEST(DirectOnADevice, AWaitThatIsLeftOutGivesWrongSums) {
  const auto outcomes = run_on_device(2, [](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 0) queue_of(fabric).toy_sharing().wait_for_nothing();
    const auto buffer = fabric.allocate(kLarge);
    // The queue of rank 1 stands still until rank 0 has its sum.
    const auto open = std::make_shared<std::atomic<bool>>(false);
    if (fabric.rank() == 1)
      queue_of(fabric).put([open] {
        while (!*open) std::this_thread::sleep_for(1ms);
      });
    fill(buffer->span(), 1);
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
    const bool right = fabric.rank() == 1 || all_are(buffer->span(), 2);
    co_await fabric.barrier(1, soon(fabric));
    *open = true;
    require(right, "a wrong sum");
  });
  EXPECT_NE(outcomes[0].error.find("a wrong sum"), std::string::npos) << outcomes[0].error;
}

// Memory that did not come from the fabric takes part through a copy on the device.
TEST(DirectOnADevice, TakesMemoryThatNobodyCanOpen) {
  expect_all_ok(run_on_device(3, [](Fabric& fabric) -> Task<> {
    for (const std::size_t count : {kSmall, kLarge}) {
      const auto other = queue_of(fabric).allocate(count, Type::f32);
      fill(other->span(), 2);
      co_await fabric.all_reduce(0, other->span(), soon(fabric));
      require(all_are(other->span(), 6), "a wrong sum");
      fill(other->span(), static_cast<float>(fabric.rank()));
      co_await fabric.broadcast(0, other->span(), 1, soon(fabric));
      require(all_are(other->span(), 1), "another's values");
      const int next = (fabric.rank() + 1) % 3, previous = (fabric.rank() + 2) % 3;
      const auto into = queue_of(fabric).allocate(count, Type::f32);
      std::vector<Task<>> both;
      both.push_back(fabric.send(2, next, other->span(), soon(fabric)));
      both.push_back(fabric.receive(2, previous, into->span(), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(both));
      require(all_are(into->span(), 1), "another message");
    }
  }));
}

TEST(DirectOnADevice, MessagesGoBothWaysAtOnceAndLeaveTheirMemoryFree) {
  expect_all_ok(run_on_device(2, [](Fabric& fabric) -> Task<> {
    const int peer = 1 - fabric.rank();
    for (const std::size_t count : {std::size_t{3}, kLarge}) {
      const auto out = fabric.allocate(count), in_here = fabric.allocate(count),
                 sum = fabric.allocate(count);
      float expected = 0;
      for (int k = 0; k < 40; ++k) {
        fill(out->span(), static_cast<float>(100 * fabric.rank() + k));
        co_await fabric.exchange(0, peer, out->span(), in_here->span(), soon(fabric));
        fill(out->span(), -1000);
        add(sum->span(), in_here->span());
        fill(in_here->span(), -1000);
        expected += static_cast<float>(100 * peer + k);
      }
      require(all_are(sum->span(), expected), "other messages");
    }
  }));
}

// From a device to memory of the host and back.
TEST(DirectOnADevice, MessagesPassBetweenDevicesAndHosts) {
  expect_all_ok(run_on_device(2, [](Fabric& fabric) -> Task<> {
    for (const std::size_t count : {kSmall, kLarge}) {
      const auto device = fabric.allocate(count), host = allocate_on_heap(count);
      if (fabric.rank() == 0) {
        fill(device->span(), 5);
        co_await fabric.send(0, 1, device->span(), soon(fabric));
        co_await fabric.receive(0, 1, device->span(), soon(fabric));
        require(all_are(device->span(), 6), "another answer");
      } else {
        co_await fabric.receive(0, 0, host->span(), soon(fabric));
        require(all_are(host->span(), 5), "another message");
        fill(host->span(), 6);
        co_await fabric.send(0, 0, host->span(), soon(fabric));
        fill(host->span(), 7);
      }
      co_await fabric.barrier(1, soon(fabric));
    }
  }));
}

TEST(DirectOnADevice, MemoryOfDifferentKindsIsAnErrorOnEveryRank) {
  for (const std::size_t count : {kSmall, kLarge}) {
    const auto outcomes = run_on_device(3, [count](Fabric& fabric) -> Task<> {
      const auto device = fabric.allocate(count), host = allocate_on_heap(count);
      co_await fabric.all_reduce(0, (fabric.rank() == 1 ? host : device)->span(), in(fabric, 5s));
    });
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.io_error) << outcome.error;
      EXPECT_NE(outcome.error.find("memory of"), std::string::npos) << outcome.error;
    }
  }
}

// Whoever ends well has the sum of what all had, however the one that gives up goes on with its
// memory.
TEST(DirectOnADevice, WhatIsGivenUpInTheMiddleIsNobodysResult) {
  for (int delay_us = 0; delay_us <= 3000; delay_us += 150)
    for (const std::size_t count : {kSmall, kLarge})
      expect_all_ok(run_on_device(3, [=](Fabric& fabric) -> Task<> {
        const auto buffer = fabric.allocate(count);
        queue_of(fabric).put([] { std::this_thread::sleep_for(2ms); });
        fill(buffer->span(), 1);
        Job job = fabric.loop().spawn(fabric.all_reduce(0, buffer->span(), in(fabric, 20s)));
        if (fabric.rank() == 0) {
          co_await fabric.loop().sleep_for(std::chrono::microseconds(delay_us));
          job.abandon();
          fill(buffer->span(), -1000);
        } else {
          if (fabric.rank() == 2) co_await fabric.loop().sleep_for(1ms);
          try {
            co_await job.join();
            require(all_are(buffer->span(), 3), "a wrong sum");
          } catch (const IoError&) {
          }
        }
        co_await fabric.barrier(1, soon(fabric));
        if (fabric.rank() == 0) require(all_are(buffer->span(), -1000), "written to");
      }));
}

TEST(DirectOnADevice, AMessageThatIsTakenBackIsNobodysMessage) {
  for (int delay_us = 0; delay_us <= 3000; delay_us += 100)
    expect_all_ok(run_on_device(2, [=](Fabric& fabric) -> Task<> {
      const auto buffer = fabric.allocate(kLarge);
      if (fabric.rank() == 0) {
        queue_of(fabric).put([] { std::this_thread::sleep_for(2ms); });
        fill(buffer->span(), 1);
        Job job = fabric.loop().spawn(fabric.send(0, 1, buffer->span(), in(fabric, 20s)));
        co_await fabric.loop().sleep_for(std::chrono::microseconds(delay_us));
        job.abandon();
        fill(buffer->span(), -1000);
      } else {
        queue_of(fabric).put([] { std::this_thread::sleep_for(1ms); });
        try {
          co_await fabric.receive(0, 0, buffer->span(), in(fabric, 20s));
          require(all_are(buffer->span(), 1), "another message");
        } catch (const IoError&) {
        }
      }
      co_await fabric.barrier(1, soon(fabric));
    }));
}

// Its peers' queues wait for one that will never come: they are let go.
TEST(DirectOnADevice, AQueueThatWaitsForADeadWorkerIsLetGo) {
  for (const std::size_t count : {kSmall, kLarge})
    expect_all_ok(
        run_on_device(3,
                      [count](Fabric& fabric) -> Task<> {
                        const auto buffer = fabric.allocate(count);
                        if (fabric.rank() == 1)
                          queue_of(fabric).put([] { std::this_thread::sleep_for(1000s); });
                        co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
                        co_await fabric.barrier(1, soon(fabric));
                        if (fabric.rank() == 1) co_await die(fabric);
                        const Mark behind = queue_of(fabric).record();
                        require(!reached(behind), "nothing was waited for");
                        const Time start = fabric.loop().now();
                        co_await until_reached(fabric.loop(), behind);
                        require(fabric.loop().now() - start < 60s, "let go too late");
                      }),
        1);
}

// What its queue had not come to when it died is not a message.
TEST(DirectOnADevice, AMessageThatWasNotThereWhenItsSenderDiedIsAnError) {
  expect_all_ok(run_on_device(2,
                              [](Fabric& fabric) -> Task<> {
                                const auto buffer = fabric.allocate(kLarge);
                                if (fabric.rank() == 1) {
                                  queue_of(fabric).put([] { std::this_thread::sleep_for(1000s); });
                                  fill(buffer->span(), 1);
                                  const Operation operation{"send", 0, 0, soon(fabric)};
                                  co_await fabric.start_send(operation, 0, buffer->span());
                                  co_await fabric.loop().sleep_for(100ms);
                                  co_await die(fabric);
                                }
                                bool refused = false;
                                const Time start = fabric.loop().now();
                                try {
                                  co_await fabric.receive(0, 1, buffer->span(), soon(fabric));
                                } catch (const IoError& error) {
                                  refused = error.peer() == 1;
                                }
                                require(refused, "took what was not there");
                                require(fabric.loop().now() - start < 60s, "noticed too late");
                                require(all_are(buffer->span(), 0), "wrote what was not there");
                              }),
                1);
}

// One that cannot open the others' memory: all go through the host, and know why.
TEST(DirectOnADevice, AllStageWhereOneCannotOpenMemory) {
  const PrepareQueue prepare = [](toy::ToyQueue& queue, int rank) {
    if (rank == 1) queue.toy_sharing().open_nothing();
  };
  expect_all_ok(run_on_device(
      3,
      [](Fabric& fabric) -> Task<> {
        require(
            fabric.why_staged().starts_with("rank 1: memory of rank 0: this device sees no memory"),
            "says: " + fabric.why_staged());
        const std::size_t opened = queue_of(fabric).toy_sharing().opened();
        for (const std::size_t count : {kSmall, kLarge}) {
          const auto buffer = fabric.allocate(count);
          fill(buffer->span(), 2);
          co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
          require(all_are(buffer->span(), 6), "a wrong sum");
        }
        require(queue_of(fabric).toy_sharing().opened() == opened, "opened all the same");
        // The next model asks again.
        co_await fabric.meet_on_device(soon(fabric));
        require(fabric.why_staged().starts_with("rank 1: "), "says: " + fabric.why_staged());
      },
      prepare));
}

// Its copy is in its own memory, which a peer may not have opened when it goes, or its queue not
// read.
TEST(DirectOnADevice, WhoLeavesAtOnceLeavesNobodyWithoutItsPart) {
  for (int again = 0; again < 10; ++again)
    expect_all_ok(run_on_device(3, [](Fabric& fabric) -> Task<> {
      const auto buffer = fabric.allocate(kSmall);
      fill(buffer->span(), 1);
      if (fabric.rank() == 1) co_await fabric.loop().sleep_for(3ms);
      if (fabric.rank() == 2) queue_of(fabric).put([] { std::this_thread::sleep_for(20ms); });
      co_await fabric.all_reduce(3, buffer->span(), soon(fabric));
      if (fabric.rank() != 0) require(all_are(buffer->span(), 3), "a wrong sum");
    }));
}

TEST(DirectOnADevice, MeetingAgainChangesNothing) {
  expect_all_ok(run_on_device(3, [](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(kLarge);
    for (int k = 0; k < 3; ++k) {
      const std::size_t opened = queue_of(fabric).toy_sharing().opened();
      co_await fabric.meet_on_device(soon(fabric));
      require(queue_of(fabric).toy_sharing().opened() == opened, "opened again");
      fill(buffer->span(), 1);
      co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
      require(all_are(buffer->span(), 3), "a wrong sum");
    }
  }));
}

}  // namespace
}  // namespace skein::conformance

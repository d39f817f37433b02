// Messages that did not end well: what comes after them, and whose the memory is.
#include <gtest/gtest.h>

#include <algorithm>

#include "conformance/timed.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr Channel kBroken = 0, kOther = 1, kWord = 2;

Deadline in(Fabric& fabric, Duration time) { return fabric.loop().now() + time; }

void require(bool holds, const std::string& what) {
  if (!holds) throw Error(what);
}

// Runs `task`, which must fail because of `peer`.
Task<> expect_io_error(Task<> task, int peer, const char* what) {
  int named = -2;
  try {
    co_await task;
  } catch (const IoError& error) {
    named = error.peer();
  }
  require(named == peer, std::string(what) + ": named " + std::to_string(named));
}

// Tells the other rank that this one has come so far.
Task<> tell(Fabric& fabric) {
  float word = 1;
  co_await fabric.send(kWord, 1 - fabric.rank(), {&word, 1}, in(fabric, 60s));
}

// Waits until the other rank has come so far.
Task<> hear(Fabric& fabric) {
  float word = 0;
  co_await fabric.receive(kWord, 1 - fabric.rank(), {&word, 1}, in(fabric, 60s));
}

Task<> exchange_on_another_channel(Fabric& fabric) {
  float out = static_cast<float>(fabric.rank()), in_value = -1;
  const int peer = 1 - fabric.rank();
  co_await fabric.exchange(kOther, peer, {&out, 1}, {&in_value, 1}, in(fabric, 20s));
  require(in_value == static_cast<float>(peer), "another channel suffers");
}

class LinesOn : public testing::TestWithParam<World> {
 protected:
  void run(const Body& body) { expect_ok(GetParam(), 2, body); }
};

// Otherwise the second receive would get the first message, and so on for ever.
TEST_P(LinesOn, AMessageThatWasWaitedForInVainIsNotTakenForTheNext) {
  run([](Fabric& fabric) -> Task<> {
    float value = -1;
    if (fabric.rank() == 1) {
      co_await expect_io_error(fabric.receive(kBroken, 0, {&value, 1}, in(fabric, 50ms)), 0,
                               "a message that nobody sent");
      co_await tell(fabric);
      co_await hear(fabric);
      co_await expect_io_error(fabric.receive(kBroken, 0, {&value, 1}, in(fabric, 20s)), 0,
                               "a receive after one that failed");
      require(value == -1, "received " + std::to_string(value));
    } else {
      co_await hear(fabric);
      float first = 1;
      // Some may leave before the news comes that nobody waits for them.
      const Deadline late = in(fabric, 60s);
      int peer = -1;
      while (peer < 0) {
        try {
          co_await fabric.send(kBroken, 1, {&first, 1}, late);
          co_await fabric.loop().sleep_for(1ms);
          require(fabric.loop().now() < late, "the news never comes");
        } catch (const TooLate&) {
          throw Error("waits for one that has given up");
        } catch (const IoError& error) {
          peer = error.peer();
        }
      }
      require(peer == 1, "names another");
      co_await expect_io_error(fabric.send(kBroken, 1, {&first, 1}, in(fabric, 20s)), 1,
                               "a send to one that has given up");
      co_await tell(fabric);
    }
    co_await exchange_on_another_channel(fabric);
  });
}

TEST_P(LinesOn, ACancelledReceiveBreaksItsLineAlone) {
  run([](Fabric& fabric) -> Task<> {
    float value = -1;
    if (fabric.rank() == 1) {
      Job job = fabric.loop().spawn(fabric.receive(kBroken, 0, {&value, 1}, kNever));
      co_await fabric.loop().sleep_for(20ms);
      job.abandon();
      co_await expect_io_error(fabric.receive(kBroken, 0, {&value, 1}, in(fabric, 20s)), 0,
                               "a receive after one that was abandoned");
      // The other direction still works.
      float mine = 5;
      co_await fabric.send(kBroken, 0, {&mine, 1}, in(fabric, 20s));
    } else {
      co_await fabric.receive(kBroken, 1, {&value, 1}, in(fabric, 20s));
      require(value == 5, "wrong message");
    }
    co_await exchange_on_another_channel(fabric);
  });
}

// More than a mailbox holds, all at once.
TEST_P(LinesOn, SendsThatWaitForRoomKeepTheirOrder) {
  run([](Fabric& fabric) -> Task<> {
    constexpr std::size_t kMessages = 200;
    std::vector<float> values(kMessages);
    std::vector<Task<>> all;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const Span value{&values[i], 1};
      if (fabric.rank() == 0) {
        values[i] = static_cast<float>(i);
        all.push_back(fabric.send(kBroken, 1, value, in(fabric, 20s)));
      } else {
        all.push_back(fabric.receive(kBroken, 0, value, in(fabric, 20s)));
      }
    }
    if (fabric.rank() == 1) {
      co_await hear(fabric);
      co_await all_of(fabric.loop(), std::move(all));
    } else {
      const Job sends = fabric.loop().spawn(all_of(fabric.loop(), std::move(all)));
      co_await fabric.loop().idle();  // all have begun, and there is no more room
      co_await tell(fabric);
      co_await sends.join();
    }
    for (std::size_t i = 0; i < kMessages; ++i)
      require(values[i] == static_cast<float>(i),
              "message " + std::to_string(i) + " is " + std::to_string(values[i]));
  });
}

constexpr std::size_t kLarge = 3'000'000;  // leaves no simulated network within 5 ms

// Either what was sent or an error, never what the sender has written there since.
Task<> receive_ones_or_nothing(Fabric& fabric, Span into) {
  try {
    co_await fabric.receive(kBroken, 0, into, in(fabric, 20s));
    require(std::ranges::all_of(floats_of(into), [](float x) { return x == 1; }),
            "another message");
  } catch (const IoError& error) {
    require(error.peer() == 0, "names another");
  }
}

TEST_P(LinesOn, WhatASenderTookBackIsNotReceived) {
  for (const bool freed : {false, true})
    run([freed](Fabric& fabric) -> Task<> {
      auto memory = fabric.allocate(kLarge);
      if (fabric.rank() == 0) {
        fill(memory->span(), 1);
        try {
          co_await fabric.send(kBroken, 1, memory->span(), in(fabric, 5ms));
        } catch (const IoError&) {
        }
        if (freed) memory = fabric.allocate(kLarge);
        fill(memory->span(), 2);
        co_await tell(fabric);
      } else {
        co_await hear(fabric);
        co_await receive_ones_or_nothing(fabric, memory->span());
      }
      co_await exchange_on_another_channel(fabric);
    });
}

// The same for a job that is dropped in the middle of an exchange, with memory that goes with it.
TEST_P(LinesOn, WhatAnAbandonedExchangeSentIsNotReceived) {
  run([](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 0) {
      auto memory = fabric.allocate(kLarge), answer = fabric.allocate(1);
      fill(memory->span(), 1);
      Job job =
          fabric.loop().spawn(fabric.exchange(kBroken, 1, memory->span(), answer->span(), kNever));
      co_await fabric.loop().sleep_for(5ms);
      job.abandon();
      memory.reset();
      memory = fabric.allocate(kLarge);
      fill(memory->span(), 2);
      co_await tell(fabric);
    } else {
      const auto memory = fabric.allocate(kLarge);
      co_await hear(fabric);
      co_await receive_ones_or_nothing(fabric, memory->span());
    }
    co_await exchange_on_another_channel(fabric);
  });
}

// A peer that comes late must not write its sum into a buffer that is used for something else.
TEST_P(LinesOn, ACollectiveThatWasGivenUpIsLeftAlone) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{300'000}})
    run([count](Fabric& fabric) -> Task<> {
      const auto memory = fabric.allocate(count);
      const Span buffer = memory->span();
      if (fabric.rank() == 0) {
        co_await expect_io_error(fabric.all_reduce(kBroken, buffer, in(fabric, 100ms)), 1, "late");
        fill(buffer, -1);
        co_await tell(fabric);
        co_await hear(fabric);
        require(std::ranges::all_of(floats_of(buffer), [](float x) { return x == -1; }),
                "written to");
      } else {
        fill(buffer, 1);
        co_await hear(fabric);
        try {
          co_await fabric.all_reduce(kBroken, buffer, in(fabric, 60s));
        } catch (const TooLate&) {
          throw Error("waits for one that has given up");
        } catch (const IoError& error) {
          require(error.peer() == 0, "names another");
        }
        co_await tell(fabric);
      }
      co_await exchange_on_another_channel(fabric);
    });
}

// One that is dropped before its turn has come must not leave those behind it waiting for ever.
// A message closed the line, and no collective has failed that could name anybody else.
TEST_P(LinesOn, CollectivesNameThePeerOfALineThatAMessageClosed) {
  run([](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 1) {
      float value = -1;
      co_await expect_io_error(fabric.receive(kBroken, 0, {&value, 1}, in(fabric, 50ms)), 0,
                               "a message that nobody sent");
      co_await expect_io_error(fabric.barrier(kBroken, in(fabric, 200ms)), 0,
                               "the next collective");
      co_await expect_io_error(fabric.barrier(kBroken, in(fabric, 20s)), 0, "the one after it");
      co_await tell(fabric);
    } else {
      co_await hear(fabric);
    }
    co_await exchange_on_another_channel(fabric);
  });
}

TEST_P(LinesOn, ACollectiveThatIsAbandonedBeforeItsTurnEndsThoseBehindIt) {
  run([](Fabric& fabric) -> Task<> {
    if (fabric.rank() == 0) {
      float a = 1, b = 1, c = 1;
      const Limit limit = Limit::silence(20s);
      Job first = fabric.loop().spawn(fabric.all_reduce(kBroken, {&a, 1}, limit));
      Job second = fabric.loop().spawn(fabric.all_reduce(kBroken, {&b, 1}, limit));
      Job third = fabric.loop().spawn(fabric.all_reduce(kBroken, {&c, 1}, limit));
      co_await fabric.loop().idle();  // the first has begun, and the others wait
      second.abandon();
      co_await tell(fabric);
      bool refused = false;
      try {
        co_await third.join();
      } catch (const IoError&) {
        refused = true;
      }
      require(refused, "went on as if nothing were missing");
      co_await first.join();
      require(a == 3, "the first one suffers");
    } else {
      co_await hear(fabric);
      float a = 2;
      co_await fabric.all_reduce(kBroken, {&a, 1}, in(fabric, 20s));
      require(a == 3, "the first one suffers");
    }
    co_await exchange_on_another_channel(fabric);
  });
}

// The network is kept busy from one operation to the next; where the peer stops in between, what it
// took part in has its result and what it did not has an error and its own memory.
TEST_P(LinesOn, OfManyAtOnceThoseThatThePeerMakesEndWellAndTheOthersNot) {
  constexpr std::size_t kOperations = 6, kCount = 200'000;
  for (const std::size_t made : {1, 3})
    expect_ok_in_time(GetParam(), 2, 1s, [made](Fabric& fabric, Duration unit) -> Task<> {
      std::vector<std::unique_ptr<Memory>> buffers;
      std::vector<ScopedJob> jobs;
      const std::size_t mine = fabric.rank() == 0 ? kOperations : made;
      const Deadline deadline = in(fabric, fabric.rank() == 0 ? unit : 60 * unit);
      for (std::size_t k = 0; k < mine; ++k) {
        buffers.push_back(fabric.allocate(kCount));
        fill(buffers[k]->span(), static_cast<float>(fabric.rank() + 1));
        jobs.emplace_back(
            fabric.loop().spawn(fabric.reduce_scatter(kBroken, buffers[k]->span(), deadline)));
      }
      for (std::size_t k = 0; k < mine; ++k) {
        if (k < made) {
          co_await jobs[k]->join();
          const auto values = floats_of(buffers[k]->span());
          const Range own = fabric.part(kCount, fabric.rank());
          require(values[own.offset] == 3 && values[own.end() - 1] == 3, "a wrong sum");
        } else {
          co_await expect_io_error(jobs[k]->join(), 1, "the others");
          fill(buffers[k]->span(), -1);
        }
      }
      if (fabric.rank() == 0) co_await hear(fabric);
      if (fabric.rank() == 1) co_await tell(fabric);
      for (std::size_t k = made; k < mine; ++k)
        require(std::ranges::all_of(floats_of(buffers[k]->span()), [](float x) { return x == -1; }),
                "written to after it was given up");
      co_await exchange_on_another_channel(fabric);
    });
}

// A copy is sent, so the caller's memory is its own again at once.
TEST_P(LinesOn, WhatIsSentAndForgottenArrivesAsItWas) {
  run([](Fabric& fabric) -> Task<> {
    float value = 3;
    if (fabric.rank() == 0) {
      fabric.send_and_forget(kBroken, 1, {&value, 1});
      value = 4;
      co_await tell(fabric);
      co_await hear(fabric);
    } else {
      co_await hear(fabric);
      co_await fabric.receive(kBroken, 0, {&value, 1}, in(fabric, 20s));
      require(value == 3, "received " + std::to_string(value));
      co_await tell(fabric);
    }
  });
}

TEST_P(LinesOn, ChannelsAreAllottedOnceAndRunOutWithAClearError) {
  run([](Fabric& fabric) -> Task<> {
    Channel last = 0;
    std::string refusal;
    try {
      for (;;) {
        const Channel next = fabric.allot_channels();
        require(next == last + kChannelBlock, "a block was skipped or handed out twice");
        last = next;
      }
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    require(refusal.find("models") != std::string::npos, refusal);
    require(last / kChannelBlock > 1000, "too few");
    float sum = 1;
    co_await fabric.all_reduce(last + kChannelBlock - 1, {&sum, 1}, in(fabric, 20s));
    require(sum == 2, "the last channel does not work");
    const int peer = 1 - fabric.rank();
    float out = 7, back = 0;
    co_await fabric.exchange(last, peer, {&out, 1}, {&back, 1}, in(fabric, 20s));
    require(back == 7, "the last block does not work");
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, LinesOn, testing::ValuesIn(worlds()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::conformance

// What every fabric must do, on 1, 2, 3, 4 and 8 ranks.
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <numeric>

#include "conformance/harness.h"
#include "core/packed.h"
#include "core/rng.h"
#include "fabric/group.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSizes[] = {0, 1, 2, 15, 16, 17, 1000, 4096, 4097, 100003, 1 << 20};

Deadline in(Fabric& fabric, Duration time) { return fabric.loop().now() + time; }
Deadline soon(Fabric& fabric) { return in(fabric, 120s); }

// Small integers: sums are exact in any order, so results can be compared with ==.
float value(int rank, std::size_t i, std::size_t salt = 0) {
  return static_cast<float>((i * 7 + salt * 13 + static_cast<std::size_t>(rank) * 31) % 101);
}
float total(int size, std::size_t i, std::size_t salt = 0) {
  float sum = 0;
  for (int r = 0; r < size; ++r) sum += value(r, i, salt);
  return sum;
}
void set(Span span, int rank, std::size_t salt = 0) {
  const auto all_of = floats_of(span);
  for (std::size_t i = 0; i < span.count; ++i) all_of[i] = value(rank, i, salt);
}

class Conformance : public testing::TestWithParam<std::tuple<World, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  const World& world() const { return std::get<0>(GetParam()); }
  std::vector<Outcome> run(const Body& body) { return world().run(size(), body); }
  void run_all_ok(const Body& body) {
    expect_ok(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

// What takes a peer to be seen.
class ConformanceOfPeers : public Conformance {};

// Both kinds of memory: the fabric's own and any other.
template <typename Test>
Task<> with_both_memories(Fabric& fabric, std::size_t count, Test test) {
  const auto own = fabric.allocate(count);
  co_await test(own->span());
  const auto other = allocate_on_heap(count);
  co_await test(other->span());
}

TEST_P(Conformance, ReduceScatterLeavesTheSumInOwnShard) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto test = [&](Span buffer) -> Task<> {
        set(buffer, fabric.rank(), count);
        co_await fabric.reduce_scatter(0, buffer, soon(fabric));
        const Range mine = fabric.part(count, fabric.rank());
        const auto all_buffer = floats_of(buffer);
        for (std::size_t i = mine.offset; i < mine.end(); ++i)
          if (all_buffer[i] != total(fabric.size(), i, count))
            throw Error("wrong sum at " + std::to_string(i));
      };
      co_await with_both_memories(fabric, count, test);
    }
  });
}

TEST_P(Conformance, AllGatherCopiesEveryShard) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto test = [&](Span buffer) -> Task<> {
        const auto all_buffer = floats_of(buffer);
        for (std::size_t i = 0; i < count; ++i) all_buffer[i] = -1;
        set(buffer.at(fabric.part(count, fabric.rank())), fabric.rank());
        co_await fabric.all_gather(0, buffer, soon(fabric));
        for (int r = 0; r < fabric.size(); ++r) {
          const Span part = buffer.at(fabric.part(count, r));
          const auto all_part = floats_of(part);
          for (std::size_t i = 0; i < part.count; ++i)
            if (all_part[i] != value(r, i)) throw Error("wrong value at " + std::to_string(i));
        }
      };
      co_await with_both_memories(fabric, count, test);
    }
  });
}

TEST_P(Conformance, AllReduceSumsEverywhere) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t count : kSizes) {
      const auto test = [&](Span buffer) -> Task<> {
        set(buffer, fabric.rank(), count);
        co_await fabric.all_reduce(3, buffer, soon(fabric));
        const auto all_buffer = floats_of(buffer);
        for (std::size_t i = 0; i < count; ++i)
          if (all_buffer[i] != total(fabric.size(), i, count))
            throw Error("wrong sum at " + std::to_string(i));
      };
      co_await with_both_memories(fabric, count, test);
    }
  });
}

// What is merged depends on the order: each rank appends itself. From a few bytes to what no fabric
// takes for small.
TEST_P(Conformance, CombineMergesTheRecordsOfAllInOneOrder) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (const std::size_t room : {std::size_t{16}, std::size_t{40000}}) {
      std::vector<std::byte> record(room);
      record[0] = std::byte{1};  // how many follow
      record[1] = static_cast<std::byte>(fabric.rank());
      const Merge merge = [](std::span<std::byte> into, std::span<const std::byte> from) {
        const auto have = std::to_integer<std::size_t>(into[0]);
        const auto more = std::to_integer<std::size_t>(from[0]);
        std::ranges::copy(from.subspan(1, more),
                          into.begin() + 1 + static_cast<std::ptrdiff_t>(have));
        into[0] = static_cast<std::byte>(have + more);
      };
      for (int again = 0; again < 3; ++again) {
        std::vector<std::byte> mine = record;
        co_await fabric.combine(3, message_of(mine), merge, soon(fabric));
        if (mine[0] != static_cast<std::byte>(fabric.size())) throw Error("not everybody is in it");
        std::vector<bool> seen(static_cast<std::size_t>(fabric.size()));
        for (std::size_t i = 1; i <= seen.size(); ++i)
          seen.at(std::to_integer<std::size_t>(mine[i])) = true;
        if (std::ranges::count(seen, true) != fabric.size()) throw Error("somebody is in it twice");
        std::vector<std::byte> first = mine;
        co_await fabric.broadcast(3, message_of(first), 0, soon(fabric));
        if (first != mine) throw Error("ranks have merged in different orders");
      }
    }
  });
}

// Rounding depends on the order of the sum: these must agree bit for bit.
TEST_P(Conformance, AllReduceHasTheBitsOfReduceScatterAndAllGatherOnEveryRank) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const std::size_t count = 50021;
    const auto one = fabric.allocate(count), two = fabric.allocate(count),
               zero = fabric.allocate(count);
    Rng rng(static_cast<std::uint64_t>(fabric.rank()) + 5);
    const auto all_one = floats_of(one->span());
    const auto all_two = floats_of(two->span());
    for (std::size_t i = 0; i < count; ++i)
      all_one[i] = all_two[i] = static_cast<float>(rng.normal());
    co_await fabric.all_reduce(0, one->span(), soon(fabric));
    co_await fabric.reduce_scatter(0, two->span(), soon(fabric));
    co_await fabric.all_gather(0, two->span(), soon(fabric));
    const auto sum = floats_of(one->span());
    if (!std::ranges::equal(sum, floats_of(two->span()))) throw Error("the bits differ");
    if (fabric.rank() == 0) std::ranges::copy(sum, floats_of(zero->span()).begin());
    co_await fabric.broadcast(0, zero->span(), 0, soon(fabric));
    if (!std::ranges::equal(sum, floats_of(zero->span()))) throw Error("the ranks differ");
  });
}

// In two levels: the sums of hosts, in the order of a ring of hosts, each in that of a ring inside.
TEST_P(Conformance, SumsAreAddedInTheOrderOfARingOrOfRingsInTwoLevels) {
  if (world().name == "nccl") GTEST_SKIP() << "NCCL adds in an order of its own";
  run_all_ok([](Fabric& fabric) -> Task<> {
    const int each = workers_of_a_host(fabric), hosts = fabric.size() / each;
    const auto normal = [&](int rank, std::size_t i) {
      return static_cast<float>(Rng(static_cast<std::uint64_t>(rank) * 100003 + i).normal());
    };
    for (const std::size_t count : {std::size_t{100}, std::size_t{6007}}) {
      const auto buffer = fabric.allocate(count);
      const auto own = floats_of(buffer->span());
      for (std::size_t i = 0; i < count; ++i) own[i] = normal(fabric.rank(), i);
      co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
      const auto got = floats_of(buffer->span());
      for (int part = 0; part < fabric.size(); ++part) {
        const Range range = fabric.part(count, part);
        for (std::size_t i = range.offset; i < range.end(); ++i) {
          float want = 0;
          for (int h = 1; h <= hosts; ++h) {
            const int first = (part / each + h) % hosts * each;
            float inside = normal(first + (part + 1) % each, i);
            for (int k = 2; k <= each; ++k) inside += normal(first + (part + k) % each, i);
            want = h == 1 ? inside : want + inside;
          }
          if (got[i] != want) throw Error("another order at " + std::to_string(i));
        }
      }
    }
  });
}

// Groups and the whole at the same time; a group of one; ranks that are not next to each other.
TEST_P(Conformance, GroupsAreFabricsOfTheirOwn) {
  run_all_ok([](Fabric& whole) -> Task<> {
    for (const int groups : {1, 2, 3, 8}) {
      const int colour = whole.rank() % groups;
      const auto group = co_await split(whole, colour, soon(whole));
      if (group->rank() != whole.rank() / groups) throw Error("another rank");
      const std::size_t count = 20011;
      const auto inner = group->allocate(count), outer = whole.allocate(count);
      set(inner->span(), whole.rank());
      set(outer->span(), whole.rank());
      std::vector<Task<>> both;
      both.push_back(group->all_reduce(0, inner->span(), soon(whole)));
      both.push_back(whole.all_reduce(0, outer->span(), soon(whole)));
      both.push_back(group->barrier(1, soon(whole)));
      co_await all_of(whole.loop(), std::move(both));
      const auto of_group = floats_of(inner->span()), of_all = floats_of(outer->span());
      for (std::size_t i = 0; i < count; ++i) {
        float want = 0;
        for (int r = colour; r < whole.size(); r += groups) want += value(r, i);
        if (of_group[i] != want || of_all[i] != total(whole.size(), i)) throw Error("wrong sum");
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    for (int root = 0; root < fabric.size(); ++root) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{200000}}) {
        const auto test = [&](Span buffer) -> Task<> {
          set(buffer, fabric.rank());
          co_await fabric.broadcast(1, buffer, root, soon(fabric));
          const auto all_buffer = floats_of(buffer);
          for (std::size_t i = 0; i < count; ++i)
            if (all_buffer[i] != value(root, i)) throw Error("wrong value at " + std::to_string(i));
        };
        co_await with_both_memories(fabric, count, test);
      }
    }
  });
}

TEST_P(Conformance, BarrierWaitsForTheLast) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const int last = fabric.size() - 1;
    if (fabric.rank() == last) co_await fabric.loop().sleep_for(50ms);
    std::int64_t came = fabric.loop().now().time_since_epoch().count();
    co_await fabric.barrier(0, soon(fabric));
    const std::int64_t left = fabric.loop().now().time_since_epoch().count();
    co_await fabric.broadcast(0, message_in(came), last, soon(fabric));
    if (left < came) throw Error("the barrier opened early");
  });
}

TEST_P(Conformance, PointToPointKeepsOrderAndExchangeGoesBothWays) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    if (fabric.size() == 1) co_return;
    const int next = (fabric.rank() + 1) % fabric.size();
    const int previous = (fabric.rank() + fabric.size() - 1) % fabric.size();
    const auto buffer = allocate_on_heap(1000), in = allocate_on_heap(1000);
    for (std::size_t k = 0; k < 100; ++k) {  // more than may be under way at once
      const Span part = buffer->span().at({0, k * 10});
      set(part, fabric.rank(), k);
      std::vector<Task<>> both;
      both.push_back(fabric.send(2, next, part, soon(fabric)));
      both.push_back(fabric.receive(2, previous, in->span().at({0, k * 10}), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(both));
      const auto all_in = floats_of(in->span());
      for (std::size_t i = 0; i < k * 10; ++i)
        if (all_in[i] != value(previous, i, k)) throw Error("wrong message");
    }
    const int peer = fabric.rank() ^ 1;
    if (peer >= fabric.size()) co_return;
    set(buffer->span(), fabric.rank());
    co_await fabric.exchange(3, peer, buffer->span(), in->span(), soon(fabric));
    const auto all_in = floats_of(in->span());
    for (std::size_t i = 0; i < 1000; ++i)
      if (all_in[i] != value(peer, i)) throw Error("wrong exchange");
  });
}

// All messages between two workers on a channel take one line, whatever sends them.
TEST_P(Conformance, CollectivesAndMessagesShareAChannel) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    if (fabric.size() == 1) co_return;
    const int next = (fabric.rank() + 1) % fabric.size();
    const int previous = (fabric.rank() + fabric.size() - 1) % fabric.size();
    const auto buffer = fabric.allocate(1000), in = fabric.allocate(1000);
    for (std::size_t k = 0; k < 6; ++k) {
      set(buffer->span(), fabric.rank(), k);
      co_await fabric.all_reduce(4, buffer->span(), soon(fabric));
      co_await fabric.broadcast(4, buffer->span(), static_cast<int>(k) % fabric.size(),
                                soon(fabric));
      co_await fabric.barrier(4, soon(fabric));
      set(buffer->span(), fabric.rank(), k);
      std::vector<Task<>> both;
      both.push_back(fabric.send(4, next, buffer->span(), soon(fabric)));
      both.push_back(fabric.receive(4, previous, in->span(), soon(fabric)));
      co_await all_of(fabric.loop(), std::move(both));
      const auto all_in = floats_of(in->span());
      for (std::size_t i = 0; i < 1000; ++i)
        if (all_in[i] != value(previous, i, k)) throw Error("wrong message");
    }
  });
}

TEST_P(Conformance, ManyInFlightOnInterleavedChannels) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    constexpr int kOperations = 60;
    std::vector<std::unique_ptr<Memory>> buffers;
    std::vector<Task<>> tasks;
    for (int k = 0; k < kOperations; ++k) {
      const auto salt = static_cast<std::size_t>(k);
      buffers.push_back(fabric.allocate(5000 + 37 * salt));
      set(buffers.back()->span(), fabric.rank(), salt);
    }
    // Each rank starts the channels in another order; on a channel the order is the same.
    const int turn = fabric.rank();
    for (int c = 0; c < 4; ++c)
      for (int k = (c + turn) % 4; k < kOperations; k += 4)
        tasks.push_back(
            fabric.all_reduce(k % 4, buffers[static_cast<std::size_t>(k)]->span(), soon(fabric)));
    co_await all_of(fabric.loop(), std::move(tasks));
    for (std::size_t k = 0; k < kOperations; ++k) {
      const Span buffer = buffers[k]->span();
      const auto all_buffer = floats_of(buffer);
      for (std::size_t i = 0; i < buffer.count; ++i)
        if (all_buffer[i] != total(fabric.size(), i, k)) throw Error("wrong sum");
    }
  });
}

TEST_P(ConformanceOfPeers, MismatchedSizesAreAnErrorOnEveryRank) {
  for (const std::size_t count : {std::size_t{100}, std::size_t{100000}}) {
    const auto outcomes = run([count](Fabric& fabric) -> Task<> {
      const auto buffer = fabric.allocate(count + 500);
      const std::size_t mine = fabric.rank() == 1 ? count + 500 : count;
      co_await fabric.all_reduce(0, buffer->span().at({0, mine}), in(fabric, 5s));
    });
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.io_error) << outcome.error;
  }
}

// Who begins late hears at once of the first whose time was up. So the least time counts from when
// the last was there, which nobody begins before. All have the same clock.
TEST_P(ConformanceOfPeers, ADeadlineEndsTheWaitAndNamesThePeer) {
  const auto outcomes = run([](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(100000);
    std::int64_t all_there = fabric.loop().now().time_since_epoch().count();
    const Merge later = [](std::span<std::byte> into, std::span<const std::byte> from) {
      pack(into, std::max(unpack<std::int64_t>(into), unpack<std::int64_t>(from)));
    };
    co_await fabric.combine(1, message_in(all_there), later, soon(fabric));
    const int last = fabric.size() - 1;
    float told = 1;
    if (fabric.rank() == last) {  // alive, but it does not take part
      for (int peer = 0; peer < last; ++peer) {
        try {
          co_await fabric.receive(2, peer, {&told, 1}, soon(fabric));
        } catch (const IoError&) {  // it has ended
        }
      }
      co_return;
    }
    const Time start = fabric.loop().now();
    std::exception_ptr late;
    try {
      co_await fabric.reduce_scatter(0, buffer->span(), in(fabric, 200ms));
    } catch (const IoError&) {
      late = std::current_exception();
    }
    const Time end = fabric.loop().now();
    try {
      co_await fabric.send(2, last, {&told, 1}, soon(fabric));
    } catch (const IoError&) {  // another has told it
    }
    if (end - Time(Duration(all_there)) < 150ms || end - start > 30s)
      throw Error("ended after " + std::to_string(seconds(end - start)));
    if (late) std::rethrow_exception(late);
  });
  for (int r = 0; r + 1 < size(); ++r) {
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(r)].io_error)
        << outcomes[static_cast<std::size_t>(r)].error;
    EXPECT_GE(outcomes[static_cast<std::size_t>(r)].peer, 0);
  }
}

TEST_P(ConformanceOfPeers, AKilledPeerIsAnErrorWellBeforeTheDeadline) {
  const auto die = world().die;
  if (!die) GTEST_SKIP() << kAllDie;
  const auto outcomes = run([die](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(1 << 20);
    co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
    if (fabric.rank() == 1) co_await die(fabric);
    const Time start = fabric.loop().now();
    try {
      for (;;) co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
    } catch (const IoError&) {
      if (fabric.loop().now() - start > 60s) throw Error("noticed too late");
      throw;
    }
  });
  for (int r = 0; r < size(); ++r) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    if (r == 1)
      EXPECT_EQ(outcome.signal, SIGKILL);
    else
      EXPECT_TRUE(outcome.io_error) << r << ": " << outcome.error;
  }
}

TEST_P(ConformanceOfPeers, CancellationEndsOneOperationAndLeavesOtherChannels) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const auto buffer = fabric.allocate(100000), other = fabric.allocate(1000);
    if (fabric.rank() == 0) {
      Job job = fabric.loop().spawn(fabric.all_reduce(0, buffer->span(), soon(fabric)));
      co_await fabric.loop().sleep_for(20ms);
      job.cancel();
      bool cancelled = false, refused = false;
      try {
        co_await job.join();
      } catch (const Cancelled&) {
        cancelled = true;
      }
      if (!cancelled) throw Error("not cancelled");
      try {
        co_await fabric.all_reduce(0, buffer->span(), soon(fabric));
      } catch (const IoError&) {
        refused = true;
      }
      if (!refused) throw Error("the channel of a cancelled operation still works");
    }
    set(other->span(), fabric.rank());
    co_await fabric.all_reduce(1, other->span(), soon(fabric));
    const auto all_other = floats_of(other->span());
    for (std::size_t i = 0; i < 1000; ++i)
      if (all_other[i] != total(fabric.size(), i)) throw Error("wrong sum");
  });
}

TEST_P(Conformance, BytesSentAreThoseOfARing) {
  run_all_ok([](Fabric& fabric) -> Task<> {
    const std::size_t count = 16000 * static_cast<std::size_t>(fabric.size());
    const auto buffer = fabric.allocate(count);
    const std::uint64_t before = fabric.bytes_sent();
    co_await fabric.reduce_scatter(0, buffer->span(), soon(fabric));
    co_await fabric.all_gather(0, buffer->span(), soon(fabric));
    const std::uint64_t sent = fabric.bytes_sent() - before;
    const std::size_t want = 2 * 16000 * 4 * (static_cast<std::size_t>(fabric.size()) - 1);
    if (sent != want) throw Error("sent " + std::to_string(sent));
  });
}

INSTANTIATE_TEST_SUITE_P(Fabrics, Conformance,
                         testing::Combine(testing::ValuesIn(worlds()),
                                          testing::Values(1, 2, 3, 4, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Fabrics, ConformanceOfPeers,
                         testing::Combine(testing::ValuesIn(worlds()), testing::Values(2, 3, 4, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, Conformance,
                         testing::Combine(testing::ValuesIn(nccl_worlds()),
                                          testing::Values(1, 2, 4)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Nccl, ConformanceOfPeers,
                         testing::Combine(testing::ValuesIn(nccl_worlds()), testing::Values(2, 4)),
                         name_of);

}  // namespace

}  // namespace skein::conformance

// What collectives take on the virtual network, against closed forms.
#include <gtest/gtest.h>

#include <functional>

#include "sim/testbed.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

using Collective = Task<> (*)(Fabric&, Span, Deadline);

Task<> reduce_scatter(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.reduce_scatter(0, buffer, deadline);
}
Task<> all_gather(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.all_gather(0, buffer, deadline);
}
Task<> all_reduce(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.all_reduce(0, buffer, deadline);
}
Task<> combine(Fabric& fabric, Span buffer, Deadline deadline) {
  static const Merge add_up = [](std::span<std::byte> into, std::span<const std::byte> from) {
    for (std::size_t i = 0; i < into.size(); ++i)
      into[i] =
          static_cast<std::byte>(std::to_integer<int>(into[i]) + std::to_integer<int>(from[i]));
  };
  return fabric.combine(0, buffer, add_up, deadline);
}
Task<> half_reduce_scatter(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.reduce_scatter(0, buffer, deadline, Wire::bf16);
}
Task<> half_all_gather(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.all_gather(0, buffer, deadline, Wire::bf16);
}
Task<> half_all_reduce(Fabric& fabric, Span buffer, Deadline deadline) {
  return fabric.all_reduce(0, buffer, deadline, Wire::bf16);
}

// When the last of `workers` has ended so many collectives that all begin at 0.
Duration time_of(Collective collective, int workers, const Network& network,
                 const std::function<Span(int rank)>& buffer, int times = 1) {
  Cluster cluster(workers, network, 1);
  std::vector<Ending> endings(static_cast<std::size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) {
    std::vector<Task<>> all;
    for (int i = 0; i < times; ++i)
      all.push_back(collective(cluster.fabric(rank), buffer(rank), kNever));
    cluster.spawn(rank, watched(cluster, all_of(cluster.fabric(rank).loop(), std::move(all)),
                                endings[static_cast<std::size_t>(rank)]));
  }
  run_until_idle(cluster);
  Duration last{};
  for (const Ending& ending : endings) {
    EXPECT_TRUE(ending.done) << ending.error;
    last = std::max(last, ending.at);
  }
  return last;
}

Duration time_of(Collective collective, int workers, const Network& network, std::size_t count,
                 int times = 1) {
  return time_of(
      collective, workers, network, [count](int) { return absent(count); }, times);
}

// A part of `part_bytes` for each of n ranks.
std::size_t elements(int workers, std::size_t part_bytes) {
  return static_cast<std::size_t>(workers) * part_bytes / sizeof(float);
}

class RingTime : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Workers, RingTime, testing::Values(2, 3, 8, 64));

TEST_P(RingTime, AllReduceIsTwiceNMinusOneLatenciesAndParts) {
  const int n = GetParam();
  const Network network = plain_network(kByteAtNanosecond, 20us);
  EXPECT_EQ(time_of(all_reduce, n, network, elements(n, 64000)), 2 * (n - 1) * (20us + 64000ns));
}

TEST_P(RingTime, ReduceScatterAndAllGatherAreHalfOfIt) {
  const int n = GetParam();
  const Network network = plain_network(kByteAtNanosecond, 20us);
  const Duration half = (n - 1) * (20us + 64000ns);
  EXPECT_EQ(time_of(reduce_scatter, n, network, elements(n, 64000)), half);
  EXPECT_EQ(time_of(all_gather, n, network, elements(n, 64000)), half);
}

// Messages go straight to whom they are for, one after the other: half the bytes, one latency.
TEST_P(RingTime, HalfPrecisionTakesHalfTheBytesAndOneLatency) {
  const int n = GetParam();
  const Network network = plain_network(kByteAtNanosecond, 20us);
  const Duration half = (n - 1) * 32000ns + 20us;
  EXPECT_EQ(time_of(half_reduce_scatter, n, network, elements(n, 64000)), half);
  EXPECT_EQ(time_of(half_all_gather, n, network, elements(n, 64000)), half);
  EXPECT_EQ(time_of(half_all_reduce, n, network, elements(n, 64000)), 2 * half);
}

// The next one begins while the last message of the one before is on its way.
TEST_P(RingTime, ThoseThatFollowEachOtherHideALatencyEach) {
  const int n = GetParam();
  const Network network = plain_network(kByteAtNanosecond, 20us);
  constexpr int kMany = 5;
  for (const Collective each : {reduce_scatter, all_gather, all_reduce, half_reduce_scatter,
                                half_all_gather, half_all_reduce})
    EXPECT_EQ(time_of(each, n, network, elements(n, 64000), kMany),
              kMany * time_of(each, n, network, elements(n, 64000)) - (kMany - 1) * 20us);
}

TEST_P(RingTime, StepsThatAreNoWholeNanosecondsAreRoundedUpByLessThanOneEach) {
  const int n = GetParam();
  const Network network = plain_network(1.158e9, 50us);
  const double exact = 2 * (n - 1) * (50e3 + 64000 / 1.158);
  const auto ns = static_cast<double>(time_of(all_reduce, n, network, elements(n, 64000)).count());
  EXPECT_GE(ns, exact - 1e-3);
  EXPECT_LE(ns, exact + 2 * (n - 1));
}

// Pieces keep the wire busy while the latency is shorter than the rest of a part.
TEST_P(RingTime, PiecesHideAllLatenciesButTheLast) {
  const int n = GetParam();
  Network network = plain_network(kByteAtNanosecond, 50us);
  network.chunk_bytes = Network().chunk_bytes;
  constexpr std::size_t part = 4 * 65536;
  EXPECT_EQ(time_of(all_reduce, n, network, elements(n, part)),
            2 * (n - 1) * Duration(part) + 50us);
}

// Else every round takes a piece and a latency, and the last one the rest of its part.
TEST_P(RingTime, LongLatenciesCostARoundOfOnePieceEach) {
  const int n = GetParam();
  Network network = plain_network(kByteAtNanosecond, 1ms);
  network.chunk_bytes = Network().chunk_bytes;
  constexpr std::size_t part = 4 * 65536;
  EXPECT_EQ(time_of(all_reduce, n, network, elements(n, part)),
            2 * (n - 1) * (1ms + Duration(65536)) + 3 * Duration(65536));
}

TEST_P(RingTime, PiecesAreNeverSlower) {
  const int n = GetParam();
  Network whole = plain_network(1.158e9, 50us);
  Network pieces = whole;
  pieces.chunk_bytes = Network().chunk_bytes;
  for (const std::size_t part : {64u, 6400u, 65536u, 1000000u}) {
    const Duration limit = time_of(all_reduce, n, whole, elements(n, part));
    // A nanosecond of rounding for each of at most 16 pieces.
    EXPECT_LE(time_of(all_reduce, n, pieces, elements(n, part)), limit + 2 * (n - 1) * 16ns)
        << part;
  }
}

TEST(CollectiveTime, CombineTakesALatencyPerDoubling) {
  const Network network = plain_network(kByteAtNanosecond, 20us);
  for (const int doublings : {1, 2, 3, 6}) {
    const int n = 1 << doublings;
    std::vector<std::byte> values(static_cast<std::size_t>(n) * 64, std::byte{1});
    const auto buffer = [&](int rank) {
      return message_of({&values[static_cast<std::size_t>(rank) * 64], 64});
    };
    EXPECT_EQ(time_of(combine, n, network, buffer), doublings * (20us + 64ns));
    EXPECT_EQ(values, std::vector<std::byte>(values.size(), static_cast<std::byte>(n)));
  }
}

TEST(CollectiveTime, AloneEverythingIsImmediate) {
  EXPECT_EQ(time_of(all_reduce, 1, plain_network(1e6, 1s), 1000), 0s);
}

// With free local copies only the two messages between hosts count: each connection carries all
// 2(n − 1) parts one after the other, and the latency shows once.
TEST(CollectiveTime, ARingOverHostsOfFourIsLimitedByTheConnectionsOfHosts) {
  Network network = plain_network(kByteAtNanosecond, 100us);
  network.workers_per_host = 4;
  network.local_latency = 0ns;
  network.local_bytes_per_second = 1e21;
  network.two_levels = false;
  EXPECT_EQ(time_of(all_reduce, 8, network, elements(8, 64000)), 2 * 7 * Duration(64000) + 100us);
}

// In two levels each connection carries what its host has summed, half of it each way and each
// time: the four workers exchange a part each, at once.
TEST(CollectiveTime, TwoLevelsSendWhatAHostHasSummed) {
  Network network = plain_network(kByteAtNanosecond, 100us);
  network.workers_per_host = 4;
  network.local_latency = 0ns;
  network.local_bytes_per_second = 1e21;
  EXPECT_EQ(time_of(all_reduce, 8, network, elements(8, 64000)), 2 * (4 * Duration(64000) + 100us));
}

TEST(CollectiveTime, OneHostUsesItsMemoryOnly) {
  Network network = plain_network(1, 1h);
  network.workers_per_host = 4;
  network.local_latency = 6us;
  network.local_bytes_per_second = kByteAtNanosecond;
  EXPECT_EQ(time_of(all_reduce, 4, network, elements(4, 64000)), 2 * 3 * (6us + 64000ns));
}

}  // namespace
}  // namespace skein::sim

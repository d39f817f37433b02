// What single messages take on the virtual network, against closed forms.
#include "sim/network.h"

#include <gtest/gtest.h>

#include "sim/testbed.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMega = 1000000;  // bytes; a millisecond at kByteAtNanosecond

TEST(MessageTime, IsLatencyAndBytesOverBandwidth) {
  Cluster cluster(2, plain_network(kByteAtNanosecond, 30us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = kMega, .begin = 5ms}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 5ms + 1ms + 30us);
  EXPECT_EQ(transfers[0].sent.at, 5ms + 1ms);  // the sender waits for the wire only
}

TEST(MessageTime, OfNothingIsTheLatency) {
  Cluster cluster(2, plain_network(kByteAtNanosecond, 30us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 0}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 30us);
  EXPECT_EQ(transfers[0].sent.at, 0s);
}

TEST(MessageTime, MessagesOfOneStreamTakeTurnsAndLatenciesOverlap) {
  Cluster cluster(2, plain_network(kByteAtNanosecond, 10ms), 1);
  std::vector<Transfer> transfers(3, {.from = 0, .to = 1, .bytes = kMega});
  run_transfers(cluster, transfers);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(transfers[static_cast<std::size_t>(i)].arrived.at, (i + 1) * 1ms + 10ms);
}

TEST(SharedConnection, TwoFlowsGetHalfEachAndTheLongerOneSpeedsUpWhenTheOtherEnds) {
  Cluster cluster(3, plain_network(kByteAtNanosecond, 0us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = kMega},
                                  {.from = 0, .to = 2, .bytes = 3 * kMega}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 2ms);
  EXPECT_EQ(transfers[1].arrived.at, 2ms + 2ms);
}

TEST(SharedConnection, AFlowSlowsDownWhenAnotherBegins) {
  Cluster cluster(3, plain_network(kByteAtNanosecond, 0us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 2 * kMega},
                                  {.from = 0, .to = 2, .bytes = 2 * kMega, .begin = 1ms}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 3ms);  // 1 MB alone, 1 MB at half speed
  EXPECT_EQ(transfers[1].arrived.at, 4ms);
}

TEST(SharedConnection, TheTwoDirectionsDoNotShare) {
  Cluster cluster(2, plain_network(kByteAtNanosecond, 0us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = kMega},
                                  {.from = 1, .to = 0, .bytes = kMega}};
  run_transfers(cluster, transfers);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.arrived.at, 1ms);
}

TEST(SharedConnection, ChannelsOfOnePairShareIt) {
  Cluster cluster(2, plain_network(kByteAtNanosecond, 0us), 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = kMega, .channel = 3},
                                  {.from = 0, .to = 1, .bytes = kMega, .channel = 4}};
  run_transfers(cluster, transfers);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.arrived.at, 2ms);
}

TEST(SharedConnection, IncastTakesAsLongAsAllMessagesOneByOne) {
  constexpr int n = 7;
  Cluster cluster(n + 1, plain_network(kByteAtNanosecond, 10us), 1);
  std::vector<Transfer> transfers;
  for (int from = 1; from <= n; ++from)
    transfers.push_back({.from = from, .to = 0, .bytes = 700000});
  run_transfers(cluster, transfers);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.arrived.at, n * 700000ns + 10us);
}

TEST(SharedConnection, WorkersOfOneHostShareItsConnection) {
  Network network = plain_network(kByteAtNanosecond, 10us);
  network.workers_per_host = 4;
  Cluster cluster(8, network, 1);
  EXPECT_EQ(cluster.hosts(), 2);
  std::vector<Transfer> transfers;
  for (int from = 0; from < 4; ++from)
    transfers.push_back({.from = from, .to = from + 4, .bytes = kMega});
  run_transfers(cluster, transfers);
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.arrived.at, 4ms + 10us);
}

TEST(SharedConnection, LocalMessagesDoNotTouchIt) {
  Network network = plain_network(kByteAtNanosecond, 10us);
  network.workers_per_host = 2;
  network.local_latency = 1us;
  network.local_bytes_per_second = 2 * kByteAtNanosecond;
  Cluster cluster(3, network, 1);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = kMega},
                                  {.from = 0, .to = 2, .bytes = kMega}};
  run_transfers(cluster, transfers);
  EXPECT_EQ(transfers[0].arrived.at, 500us + 1us);
  EXPECT_EQ(transfers[1].arrived.at, 1ms + 10us);
}

TEST(Delays, JitterHasItsMeanAndSeedsItsDraws) {
  const auto mean_extra = [](std::uint64_t seed) {
    Network network = plain_network(kByteAtNanosecond, 1ms);
    network.jitter = 200us;
    Cluster cluster(2, network, seed);
    constexpr int draws = 20000;
    double sum = 0;
    for (int i = 0; i < draws; ++i) {
      const Duration delay = cluster.delay(0, 1);
      EXPECT_GE(delay, 1ms);
      sum += seconds(delay - 1ms);
    }
    return sum / draws;
  };
  EXPECT_NEAR(mean_extra(1), 200e-6, 5e-6);  // 3.5 standard errors
  EXPECT_NE(mean_extra(1), mean_extra(2));
  EXPECT_EQ(mean_extra(1), mean_extra(1));
}

TEST(Delays, JitterDelaysMessagesAndKeepsTheirOrder) {
  Network network = plain_network(kByteAtNanosecond, 0us);
  network.jitter = 5ms;
  Cluster cluster(2, network, 1);
  std::vector<float> got;
  const auto sender = [&]() -> Task<> {
    for (int i = 0; i < 100; ++i) {
      float value = static_cast<float>(i);
      co_await cluster.fabric(0).send(0, 1, {&value, 1}, kNever);
      co_await cluster.loop(0).sleep_for(100us);
    }
  };
  const auto receiver = [&]() -> Task<> {
    for (int i = 0; i < 100; ++i) {
      float value = -1;
      co_await cluster.fabric(1).receive(0, 0, {&value, 1}, kNever);
      got.push_back(value);
    }
  };
  cluster.spawn(0, sender());
  cluster.spawn(1, receiver());
  run_until_idle(cluster);
  ASSERT_EQ(got.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i);
  EXPECT_GT(cluster.engine().now(), Time() + 100 * 100us);
}

TEST(Delays, LocalMessagesHaveNoJitter) {
  Network network = plain_network(kByteAtNanosecond, 1ms);
  network.workers_per_host = 2;
  network.jitter = 5ms;
  network.local_latency = 3us;
  Cluster cluster(4, network, 1);
  EXPECT_EQ(cluster.delay(0, 1), 3us);
  EXPECT_NE(cluster.delay(0, 2), 1ms);
}

}  // namespace
}  // namespace skein::sim

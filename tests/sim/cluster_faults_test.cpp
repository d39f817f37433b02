// What each fault does to those who wait, on clusters of two to four workers.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "sim/sim_fabric.h"
#include "sim/testbed.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLatency = 10us;

class FaultTest : public testing::Test {
 protected:
  void make(int workers) {
    cluster_.emplace(workers, plain_network(kByteAtNanosecond, kLatency), 1);
  }
  Cluster& cluster() { return *cluster_; }
  void at(Duration time, std::function<void()> action) {
    cluster().engine().schedule(Time() + time, std::move(action));
  }
  // `rank` waits for a message from `peer` until `patience` has passed.
  void wait_for(int rank, int peer, Duration patience, Ending& ending) {
    cluster().spawn(rank, watched(cluster(),
                                  receive_bytes(cluster().fabric(rank), peer, 4, 0,
                                                cluster().engine().now() + patience),
                                  ending));
  }
  void run() { run_until_idle(cluster()); }

  std::optional<Cluster> cluster_;
};

void expect_io_error(const Ending& ending, int peer, const std::string& why, Duration at) {
  ASSERT_TRUE(ending.done);
  EXPECT_EQ(ending.peer, peer);
  EXPECT_NE(ending.error.find("rank " + std::to_string(peer)), std::string::npos) << ending.error;
  EXPECT_NE(ending.error.find(why), std::string::npos) << ending.error;
  EXPECT_EQ(ending.at, at);
}

TEST_F(FaultTest, ACrashIsKnownToAllWhoWaitALatencyLater) {
  make(3);
  Ending first, second;
  wait_for(1, 0, 60s, first);
  wait_for(2, 0, 60s, second);
  at(1s, [&] { cluster().end_process(0, "which died"); });
  run();
  expect_io_error(first, 0, "which died", 1s + kLatency);
  expect_io_error(second, 0, "which died", 1s + kLatency);
  EXPECT_FALSE(cluster().running(0));
}

TEST_F(FaultTest, WhoWaitsLaterLearnsOfACrashAtOnce) {
  make(2);
  Ending ending;
  at(1s, [&] { cluster().end_process(0, "which died"); });
  at(2s, [&] { wait_for(1, 0, 60s, ending); });
  run();
  expect_io_error(ending, 0, "which died", 2s);
}

TEST_F(FaultTest, ACrashEndsTheJobsOfTheProcess) {
  make(2);
  Ending ending;
  wait_for(0, 1, 60s, ending);
  at(1s, [&] { cluster().end_process(0, "which died"); });
  run();
  EXPECT_FALSE(ending.done);
}

// 1 MB takes a millisecond: half of it has left when the sender dies.
TEST_F(FaultTest, ACrashedSendersMessageIsLostWhereItHadNotLeft) {
  make(2);
  Transfer transfer{.from = 0, .to = 1, .bytes = 1000000};
  start(cluster(), transfer);
  at(500us, [&] { cluster().end_process(0, "which died"); });
  run();
  expect_io_error(transfer.arrived, 0, "which died", 500us + kLatency);
}

TEST_F(FaultTest, WhatHadLeftBeforeACrashArrives) {
  make(2);
  Transfer transfer{.from = 0, .to = 1, .bytes = 1000000};
  start(cluster(), transfer);
  at(1ms + 1us, [&] { cluster().end_process(0, "which died"); });
  run();
  EXPECT_TRUE(transfer.arrived.error.empty()) << transfer.arrived.error;
  EXPECT_EQ(transfer.arrived.at, 1ms + kLatency);
}

TEST_F(FaultTest, AHostThatVanishesIsNoticedAtTheDeadline) {
  make(2);
  Ending ending;
  wait_for(1, 0, 7s, ending);
  at(1s, [&] { cluster().end_process(0, ""); });
  run();
  expect_io_error(ending, 0, "did not answer by the deadline", 7s);
}

TEST_F(FaultTest, AFailureIsQuotedToThePeers) {
  make(2);
  Ending ending;
  wait_for(1, 0, 60s, ending);
  at(1s, [&] { cluster().fabric(0).fail("no space left"); });
  run();
  expect_io_error(ending, 0, "which failed: no space left", 1s + kLatency);
}

TEST_F(FaultTest, APartitionHoldsMessagesAndHealingSendsTheRest) {
  make(4);
  std::vector<Transfer> transfers{{.from = 0, .to = 2, .bytes = 1000000},
                                  {.from = 3, .to = 1, .bytes = 1000000, .begin = 1ms},
                                  {.from = 2, .to = 3, .bytes = 1000000}};
  int number = -1;
  at(400us, [&] { number = cluster().partition({0, 1}); });
  at(2s, [&] { cluster().heal(number); });
  run_transfers(cluster(), transfers);
  EXPECT_EQ(transfers[0].arrived.at, 2s + 600us + kLatency);  // 0.4 MB had passed
  EXPECT_EQ(transfers[1].arrived.at, 2s + 1ms + kLatency);    // nothing had
  EXPECT_EQ(transfers[2].arrived.at, 1ms + kLatency);         // on one side
}

TEST_F(FaultTest, WhatIsInFlightCrossesAPartition) {
  Network network = plain_network(kByteAtNanosecond, 10ms);
  cluster_.emplace(2, network, 1);
  Transfer transfer{.from = 0, .to = 1, .bytes = 1000};
  start(cluster(), transfer);
  at(5ms, [&] { cluster().partition({0}); });
  run();
  EXPECT_EQ(transfer.arrived.at, 1us + 10ms);
}

TEST_F(FaultTest, APartitionThatLastsIsNoticedAtTheDeadline) {
  make(2);
  Ending received, sent;
  at(0s, [&] { cluster().partition({1}); });
  at(1s, [&] {
    wait_for(1, 0, 5s, received);
    cluster().spawn(
        0, watched(cluster(), send_bytes(cluster().fabric(0), 1, 4, 0, Time() + 4s), sent));
  });
  run();
  expect_io_error(received, 0, "did not answer by the deadline", 6s);
  expect_io_error(sent, 1, "did not answer by the deadline", 4s);
}

TEST_F(FaultTest, OfTwoPartitionsBothMustHeal) {
  make(3);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 1000, .begin = 2s}};
  int first = -1, second = -1;
  at(1s, [&] { first = cluster().partition({0}); });
  at(1s, [&] { second = cluster().partition({0, 2}); });
  at(3s, [&] { cluster().heal(first); });
  at(4s, [&] { cluster().heal(second); });
  run_transfers(cluster(), transfers);
  EXPECT_EQ(transfers[0].arrived.at, 4s + 1us + kLatency);
}

TEST_F(FaultTest, NewsOfADeathCrossesAPartitionOnlyAfterHealing) {
  make(3);
  Ending inside, outside;
  wait_for(1, 0, 60s, inside);
  wait_for(2, 0, 60s, outside);
  int number = -1;
  at(1s, [&] { number = cluster().partition({0, 1}); });
  at(2s, [&] { cluster().end_process(0, "which died"); });
  at(5s, [&] { cluster().heal(number); });
  run();
  expect_io_error(inside, 0, "which died", 2s + kLatency);
  expect_io_error(outside, 0, "which died", 5s);
}

TEST_F(FaultTest, ReceiptIsLateByThePauseAndTheWireIsNot) {
  make(2);
  Transfer transfer{.from = 0, .to = 1, .bytes = 1000000};
  start(cluster(), transfer);
  at(500us, [&] { cluster().pause(1); });
  at(3s, [&] { cluster().resume(1); });
  run();
  EXPECT_EQ(transfer.sent.at, 1ms);
  EXPECT_EQ(transfer.arrived.at, 3s);
  EXPECT_EQ(cluster().paused_time(1), 3s - 500us);
  EXPECT_EQ(cluster().paused_time(0), 0s);
}

TEST_F(FaultTest, PausesNestAndTheirTimeCountsOnce) {
  make(2);
  Transfer transfer{.from = 0, .to = 1, .bytes = 4};
  start(cluster(), transfer);
  at(0s, [&] { cluster().pause(1); });
  at(1s, [&] { cluster().pause(1); });
  at(2s, [&] { cluster().resume(1); });
  at(3s, [&] { EXPECT_EQ(cluster().paused_time(1), 3s); });
  at(5s, [&] { cluster().resume(1); });
  run();
  EXPECT_EQ(transfer.arrived.at, 5s);
  EXPECT_EQ(cluster().paused_time(1), 5s);
}

TEST_F(FaultTest, APauseEndsWithItsProcess) {
  make(2);
  bool ran = false;
  const auto run_at_once = [&]() -> Task<> {
    ran = true;
    co_return;
  };
  at(1s, [&] { cluster().pause(0); });
  at(2s, [&] { cluster().end_process(0, "which died"); });
  at(3s, [&] {
    cluster().restart_process(0);
    cluster().spawn(0, run_at_once());
  });
  run();
  EXPECT_TRUE(ran);
  EXPECT_EQ(cluster().paused_time(0), 1s);
}

TEST_F(FaultTest, DelayAddsToEveryMessageOfTheWorkerWhileItLasts) {
  make(3);
  std::vector<Transfer> transfers{{.from = 0, .to = 1, .bytes = 1000, .begin = 1s},
                                  {.from = 1, .to = 2, .bytes = 1000, .begin = 1s},
                                  {.from = 0, .to = 2, .bytes = 1000, .begin = 1s},
                                  {.from = 0, .to = 1, .bytes = 1000, .begin = 3s, .channel = 1}};
  at(500ms, [&] { cluster().add_delay(1, 200ms); });
  at(2s, [&] { cluster().add_delay(1, -200ms); });
  run_transfers(cluster(), transfers);
  // The third shares its connections with both others: all at half speed.
  EXPECT_EQ(transfers[0].arrived.at, 1s + 2us + kLatency + 200ms);
  EXPECT_EQ(transfers[1].arrived.at, 1s + 2us + kLatency + 200ms);
  EXPECT_EQ(transfers[2].arrived.at, 1s + 2us + kLatency);
  EXPECT_EQ(transfers[3].arrived.at, 3s + 1us + kLatency);
}

TEST_F(FaultTest, ARestartedProcessIsRefusedAndRefuses) {
  make(3);
  Ending peer, received, sent, reduced;
  at(1s, [&] { cluster().end_process(0, "which died"); });
  at(2s, [&] { cluster().restart_process(0); });
  at(3s, [&] {
    EXPECT_TRUE(cluster().running(0));
    wait_for(1, 0, 60s, peer);
    wait_for(0, 1, 60s, received);
    cluster().spawn(0, watched(cluster(), send_bytes(cluster().fabric(0), 2, 4), sent));
    cluster().spawn(
        0, watched(cluster(), cluster().fabric(0).all_reduce(3, absent(48), kNever), reduced));
  });
  run();
  expect_io_error(peer, 0, "which died", 3s);
  expect_io_error(received, 1, "knows an earlier process", 3s);
  expect_io_error(sent, 2, "knows an earlier process", 3s);
  EXPECT_TRUE(reduced.done);
  EXPECT_NE(reduced.error.find("knows an earlier process"), std::string::npos) << reduced.error;
}

// The message was for the process before.
TEST_F(FaultTest, ARestartedProcessDoesNotGetItsPredecessorsMessages) {
  make(2);
  cluster().spawn(1, send_bytes(cluster().fabric(1), 0, 1000000));
  Ending received;
  at(100us, [&] {
    cluster().end_process(0, "which died");
    cluster().restart_process(0);
    cluster().spawn(0,
                    watched(cluster(), receive_bytes(cluster().fabric(0), 1, 1000000), received));
  });
  run();
  expect_io_error(received, 1, "knows an earlier process", 100us);
}

TEST_F(FaultTest, ARestartedProcessSendsNothingToItsPeers) {
  make(2);
  Ending sent, received;
  at(1s, [&] {
    cluster().end_process(0, "which died");
    cluster().restart_process(0);
    cluster().spawn(0, watched(cluster(), send_bytes(cluster().fabric(0), 1, 4), sent));
    wait_for(1, 0, 60s, received);
  });
  run();
  expect_io_error(sent, 1, "knows an earlier process", 1s);
  expect_io_error(received, 0, "which died", 1s + kLatency);
}

// Faster than the news of its death.
TEST_F(FaultTest, APeerThatWaitsLearnsOfADeathThoughTheProcessIsBackAtOnce) {
  make(2);
  Ending ending;
  wait_for(1, 0, 60s, ending);
  at(1s, [&] {
    cluster().end_process(0, "which died");
    cluster().restart_process(0);
  });
  run();
  expect_io_error(ending, 0, "which died", 1s + kLatency);
}

}  // namespace
}  // namespace skein::sim

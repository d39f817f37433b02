// What networks do to connections, done to those of a run: nobody hangs, and whoever cannot go on
// says of whom and of what.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <thread>

#include "conformance/forked.h"
#include "fabric/survivors.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/pulse.h"
#include "proxy/proxied_ranks.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

// Of operations that are to end by a silence, and of those that are to go on on a busy machine.
constexpr Duration kSilence = 2s;
const Limit kLimit = Limit::silence(kSilence), kPatient = Limit::silence(120s);
constexpr std::size_t kCount = 300'000;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

float value_of(int rank, int round, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank * 31 + round)) % 1000);
}

// Sums over all ranks, again and again, and looks at every element of each.
Task<> sum_rounds(Fabric& fabric, int rounds, Limit limit = kPatient) {
  const auto memory = fabric.allocate(kCount);
  auto* values = static_cast<float*>(memory->span().data);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < kCount; ++i) values[i] = value_of(fabric.rank(), round, i);
    co_await fabric.all_reduce(0, memory->span(), limit);
    for (std::size_t i = 0; i < kCount; ++i) {
      float expected = 0;
      for (int rank = 0; rank < fabric.size(); ++rank) expected += value_of(rank, round, i);
      if (values[i] != expected) throw Error("another sum");
    }
  }
}

// The same until rank 0 sees that it is enough.
Task<> sum_until(Fabric& fabric, const std::atomic<bool>& enough) {
  for (float over = 0; over == 0;) {
    co_await sum_rounds(fabric, 1);
    over = fabric.rank() == 0 && enough ? 1.0F : 0.0F;
    co_await fabric.broadcast(0, {&over, 1}, 0, kPatient);
  }
}

ProxiedRanks::Change clear() {
  return [](TcpOptions& options) { options.encrypt = false; };
}

void expect_all_well(std::vector<RankEnd> ends) {
  for (std::size_t rank = 0; rank < ends.size(); ++rank)
    EXPECT_TRUE(ends[rank].ok) << "rank " << rank << ": " << ends[rank].error;
}

// That rank 0 and rank 1 say that they lost each other, in which operation, and how.
void expect_lost(const std::vector<RankEnd>& ends, const std::string& how) {
  for (const int rank : {0, 1}) {
    const RankEnd& end = ends[static_cast<std::size_t>(rank)];
    EXPECT_EQ(end.peer, 1 - rank) << end.error;
    EXPECT_TRUE(has(end.error, "all_reduce")) << end.error;
    EXPECT_TRUE(has(end.error, "rank " + std::to_string(1 - rank))) << end.error;
    EXPECT_TRUE(has(end.error, how)) << end.error;
    EXPECT_LT(end.took, 60 * kSilence);
  }
}

// Waits until it holds, which must be some time; false: it does not.
template <typename Condition>
bool comes(Condition condition) {
  const SteadyClock clock;
  for (const Time end = clock.now() + 200s; !condition();) {
    if (clock.now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Waits until so many bytes have passed the proxy.
void wait_for_bytes(const FaultProxy& proxy, std::uint64_t bytes) {
  EXPECT_TRUE(comes([&] {
    return proxy.passed(FaultProxy::to_target) + proxy.passed(FaultProxy::from_target) >= bytes;
  }));
}

// The ranks sum until there have been more than so many connections.
void expect_more_connections_than(int count, ProxiedRanks& ranks, std::atomic<bool>& enough) {
  EXPECT_TRUE(comes([&] { return ranks.proxy().connections() > count; }))
      << ranks.proxy().connections();
  enough = true;
  expect_all_well(ranks.ends());
}

TEST(TcpFaults, BytesThatComeLateComeAllTheSame) {
  ProxiedRanks ranks(3);
  ranks.proxy().delay(15ms);
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 3); });
  expect_all_well(ranks.ends());
}

TEST(TcpFaults, AStallBelowTheLimitChangesNothing) {
  ProxiedRanks ranks(2);
  std::atomic<bool> enough{false};
  ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
  wait_for_bytes(ranks.proxy(), 2'000'000);
  ranks.proxy().stall(true);
  std::this_thread::sleep_for(kSilence / 4);
  ranks.proxy().stall(false);
  enough = true;
  expect_all_well(ranks.ends());
}

TEST(TcpFaults, AStallAboveTheLimitEndsTheOperationThatWaits) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) { options.encrypt = encrypt; });
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000, kLimit); });
    wait_for_bytes(ranks.proxy(), 2'000'000);
    ranks.proxy().stall(true);
    expect_lost(ranks.ends(), "silent");
  }
}

// Nobody notices: the sums are those of a whole connection, bit for bit.
TEST(TcpFaults, AConnectionThatIsResetIsReplaced) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) { options.encrypt = encrypt; });
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    for (std::uint64_t bytes = 1'000'000; bytes < 10'000'000; bytes += 1'000'000) {
      wait_for_bytes(ranks.proxy(), bytes);
      ranks.proxy().cut();
    }
    expect_more_connections_than(5, ranks, enough);
  }
}

TEST(TcpFaults, ConnectionsThatAreResetAgainAndAgainAreReplaced) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(3, [&](TcpOptions& options) { options.encrypt = encrypt; });
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    wait_for_bytes(ranks.proxy(), 100'000);
    ranks.proxy().cut_every(200'003);
    expect_more_connections_than(20, ranks, enough);
  }
}

TEST(TcpFaults, AConnectionThatOneSideClosesIsReplaced) {
  for (const auto way : {FaultProxy::to_target, FaultProxy::from_target}) {
    ProxiedRanks ranks(2);
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    wait_for_bytes(ranks.proxy(), 2'000'000);
    ranks.proxy().half_close(way);
    expect_more_connections_than(1, ranks, enough);
  }
}

TEST(TcpFaults, AByteThatChangesOnTheWayIsNoticedUnderTlsAndSentAgain) {
  for (const auto way : {FaultProxy::to_target, FaultProxy::from_target}) {
    ProxiedRanks ranks(2);
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    wait_for_bytes(ranks.proxy(), 1'000'000);
    ranks.proxy().corrupt_after(way, 1'234'567);
    expect_more_connections_than(1, ranks, enough);
  }
}

// Three streams, each of which breaks when it has carried so much.
TEST(TcpFaults, SeveralStreamsThatAreResetAgainAndAgainAreReplaced) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) {
      options.encrypt = encrypt;
      options.streams = 3;
    });
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    EXPECT_TRUE(comes([&] { return ranks.proxy().carrying() >= 3; }));
    wait_for_bytes(ranks.proxy(), 100'000);
    ranks.proxy().cut_every(300'007);
    expect_more_connections_than(30, ranks, enough);
  }
}

// What it carried goes on the others, which are there all the time.
TEST(TcpFaults, AStreamThatCannotBeReplacedIsDoneWithout) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) {
      options.encrypt = encrypt;
      options.streams = 3;
    });
    std::atomic<bool> enough{false};
    ranks.start([&](Fabric& fabric) { return sum_until(fabric, enough); });
    EXPECT_TRUE(comes([&] { return ranks.proxy().carrying() >= 3; }));
    wait_for_bytes(ranks.proxy(), 1'000'000);
    ranks.proxy().refuse(true);
    ranks.proxy().cut_one();
    wait_for_bytes(ranks.proxy(), 4'000'000);
    ranks.proxy().cut_one();
    wait_for_bytes(ranks.proxy(), 8'000'000);
    enough = true;
    expect_all_well(ranks.ends());
  }
}

// Sums until it has begun to at least so many streams and `time` has passed on rank 0.
Task<> sum_long(Fabric& fabric, Duration time, const FaultProxy& proxy, int streams) {
  const auto memory = fabric.allocate(8 * kCount);
  float over = 0;
  const Time least = fabric.loop().now() + time, most = least + 200s;
  while (over == 0) {
    co_await fabric.all_reduce(0, memory->span(), kPatient);
    const Time now = fabric.loop().now();
    const bool enough = now > least && (proxy.streams() >= streams || now > most);
    over = fabric.rank() == 0 && enough ? 1.0F : 0.0F;
    co_await fabric.broadcast(0, {&over, 1}, 0, kPatient);
  }
}

TEST(TcpStreams, ThereAreMoreWhereEachIsLimited) {
  ProxiedRanks ranks(2);
  ranks.proxy().limit(10e6, FaultProxy::Of::each);
  ranks.start([&](Fabric& fabric) { return sum_long(fabric, 0s, ranks.proxy(), 2); });
  expect_all_well(ranks.ends());
  EXPECT_GT(ranks.proxy().streams(), 1);
}

// A stream that does not help is tried, and left to itself in the middle of a frame.
TEST(TcpStreams, OneThatIsNoUseHoldsNothingUp) {
  ProxiedRanks ranks(2);
  ranks.proxy().limit(10e6, FaultProxy::Of::all);
  ranks.start([&](Fabric& fabric) { return sum_long(fabric, 5s, ranks.proxy(), 1); });
  expect_all_well(ranks.ends());
}

// Small messages too, in both directions at once, which nobody keeps for the fabric.
TEST(TcpFaults, MessagesArriveOnceAndInOrderHoweverOftenTheConnectionBreaks) {
  ProxiedRanks ranks(2);
  ranks.proxy().cut_every(100'003);
  ranks.start([](Fabric& fabric) -> Task<> {
    const int peer = 1 - fabric.rank();
    for (int i = 0; i < 3000; ++i) {
      std::vector<float> out(static_cast<std::size_t>(1 + i % 700), static_cast<float>(i));
      fabric.send_and_forget(1, peer, {out.data(), out.size()});
      if (i % 50 == 0) co_await fabric.loop().yield();
    }
    for (int i = 0; i < 3000; ++i) {
      std::vector<float> in(static_cast<std::size_t>(1 + i % 700), -1.0F);
      co_await fabric.receive(1, peer, {in.data(), in.size()}, kPatient);
      if (in.front() != static_cast<float>(i) || in.back() != static_cast<float>(i))
        throw Error("message " + std::to_string(i));
    }
    float value = 1;
    co_await fabric.all_reduce(0, {&value, 1}, kPatient);
  });
  expect_all_well(ranks.ends());
  EXPECT_GT(ranks.proxy().connections(), 10);
}

// Rank 0 lives, as its listening port shows, but cannot be reached.
TEST(TcpFaults, AConnectionThatCannotBeReplacedIsGivenUpAfterASilence) {
  ProxiedRanks ranks(2, [](TcpOptions& options) { options.least_silence = 2s; });
  std::atomic<int> found{0};
  ranks.start([&](Fabric& fabric) -> Task<> {
    co_await fabric.loop().sleep_for(600ms);  // until each has sent a heartbeat
    const auto memory = fabric.allocate(kCount);
    std::exception_ptr lost;
    try {
      for (;;) co_await fabric.all_reduce(0, memory->span(), Limit::silence(600s));
    } catch (const IoError&) {
      lost = std::current_exception();
    }
    // The other is to find out by itself, not from a process that has ended.
    ++found;
    for (int i = 0; i < 60'000 && found < 2; ++i) co_await fabric.loop().sleep_for(1ms);
    std::rethrow_exception(lost);
  });
  wait_for_bytes(ranks.proxy(), 2'000'000);
  ranks.proxy().refuse(true);
  ranks.proxy().cut();
  expect_lost(ranks.ends(), "there was no other");
}

// Who sends in clear trusts the network: a sum may differ, but nobody hangs.
TEST(TcpFaults, AByteThatChangesOnTheWayInClearHangsNobody) {
  for (const std::uint64_t at : {1'000'000u, 1'000'001u, 1'100'007u, 1'200'013u, 1'300'019u}) {
    ProxiedRanks ranks(2, clear());
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 20); });
    ranks.proxy().corrupt_after(FaultProxy::to_target, at);
    for (const RankEnd& end : ranks.ends())
      EXPECT_TRUE(end.ok || has(end.error, "another sum") || has(end.error, "rank")) << end.error;
  }
}

// Long before the operation's own limit.
TEST(TcpFaults, APeerThatIsSilentIsLostWhenItsHeartbeatsStayAway) {
  static constexpr Duration kLeast = 2s;
  ProxiedRanks ranks(2, [](TcpOptions& options) { options.least_silence = kLeast; });
  std::atomic<bool> met{false}, lost{false};
  ranks.start([&](Fabric& fabric) -> Task<> {
    float value = 1;
    co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(600s));
    met = true;
    if (fabric.rank() == 0)  // it comes too late
      for (int i = 0; i < 60'000 && !lost; ++i) co_await fabric.loop().sleep_for(1ms);
    try {
      co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(600s));
    } catch (const IoError&) {
      lost = true;
      throw;
    }
  });
  EXPECT_TRUE(comes([&] { return met.load(); }));
  std::this_thread::sleep_for(3 * kLeast / 2);  // heartbeats keep them together
  EXPECT_FALSE(lost);
  ranks.proxy().stall(true);
  auto ends = ranks.ends();
  EXPECT_TRUE(has(ends[1].error, "all_reduce")) << ends[1].error;
  EXPECT_TRUE(has(ends[1].error, "not even a heartbeat")) << ends[1].error;
  EXPECT_EQ(ends[1].peer, 0);
}

// It has come to the meeting, and no further: it never sends a heartbeat.
TEST(TcpFaults, APeerThatIsStoppedBeforeItsFirstHeartbeatIsLost) {
  ProxiedRanks ranks(2, [](TcpOptions& options) {
    options.least_silence = 1s;
    options.join_timeout = 10s;
  });
  std::atomic<bool> lost{false};
  ranks.start([&](Fabric& fabric) -> Task<> {
    // Rank 0's thread stands still, as its process would after SIGSTOP.
    if (fabric.rank() == 0) comes([&] { return lost.load(); });
    float value = 1;
    try {
      co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(600s));
    } catch (const IoError&) {
      lost = true;
      throw;
    }
  });
  auto ends = ranks.ends();
  EXPECT_TRUE(has(ends[1].error, "not even a heartbeat")) << ends[1].error;
  EXPECT_EQ(ends[1].peer, 0);
}

// Rank 1 stands still as a whole, as after SIGSTOP: the others sum without it.
TEST(TcpFaults, SurvivorsGoOnWithoutASilentOne) {
  ProxiedRanks ranks(3, [](TcpOptions& options) { options.least_silence = 2s; });
  std::atomic<int> gone_on{0};
  ranks.start([&](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, 1, 2);
    float value = 1;
    const int all = co_await survivors.sum({&value, 1}, fabric.loop().now() + 600s);
    if (all != 3 || value != 3) throw Error("somebody was missing");
    co_await fabric.loop().sleep_for(500ms);  // for its first heartbeats
    if (fabric.rank() == 1) {
      comes([&] { return gone_on == 2; });  // meanwhile its loop stands still
      co_return;
    }
    value = 1;
    const int living = co_await survivors.sum({&value, 1}, fabric.loop().now() + 600s);
    ++gone_on;
    if (living != 2 || value != 2) throw Error("summed over " + std::to_string(living));
    if (survivors.lost() != std::vector<int>{1}) throw Error("lost another");
  });
  auto ends = ranks.ends();
  EXPECT_TRUE(ends[0].ok) << ends[0].error;
  EXPECT_TRUE(ends[2].ok) << ends[2].error;
  EXPECT_LT(ends[0].took, 190s);
}

// Its port is gone with it: nobody waits for another connection.
TEST(TcpFaults, AProcessThatDiesIsNoticedAtOnce) {
  for (const int dead : {0, 1, 2}) {
    const TcpRun run;
    const auto outcomes = conformance::run_forked(
        3,
        [dead](Fabric& fabric) -> Task<> {
          float value = 1;
          co_await fabric.all_reduce(0, {&value, 1}, kPatient);
          if (fabric.rank() == dead) co_await conformance::die(fabric);
          const Time begin = fabric.loop().now();
          std::string error;
          try {
            co_await fabric.receive(1, dead, {&value, 1}, Limit::silence(600s));
          } catch (const IoError& what) {
            error = what.what();
          }
          if (!has(error, "its process has ended")) throw Error(error);
          if (fabric.loop().now() - begin >= tcp::kLeastSilence) throw Error("it took long");
        },
        [&](Loop& loop, int rank) { return make_tcp_fabric(loop, run.options(rank, 3)); });
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(rank == dead || outcomes[static_cast<std::size_t>(rank)].ok)
          << rank << ": " << outcomes[static_cast<std::size_t>(rank)].error;
  }
}

// A message that never ends keeps nobody for ever.
TEST(TcpFaults, AByteNowAndThenIsNoProgress) {
  ProxiedRanks ranks(2);
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000, kLimit); });
  wait_for_bytes(ranks.proxy(), 2'000'000);
  ranks.proxy().trickle(200ms);
  expect_lost(ranks.ends(), "");
}

// Between rank 0 and rank 1 nothing moves any more; the others still talk with both.
TEST(TcpFaults, AreOfTheConnectionThatHasThem) {
  ProxiedRanks ranks(3);
  std::atomic<int> waiting{0};
  ranks.start([&](Fabric& fabric) -> Task<> {
    float value = static_cast<float>(fabric.rank());
    co_await fabric.all_reduce(0, {&value, 1}, kPatient);
    const int rank = fabric.rank();
    if (rank < 2) {
      ++waiting;
      int lost = -1;
      try {
        co_await fabric.receive(1, 1 - rank, {&value, 1}, kLimit);
      } catch (const IoError& error) {
        lost = error.peer();
      }
      if (lost != 1 - rank) throw Error("lost " + std::to_string(lost));
      co_await fabric.send(2, 2, {&value, 1}, kPatient);
    } else {
      for (int peer = 0; peer < 2; ++peer) {
        while (waiting < 2) co_await fabric.loop().sleep_for(1ms);
        co_await fabric.receive(2, peer, {&value, 1}, kPatient);
      }
    }
  });
  while (waiting < 2) std::this_thread::sleep_for(1ms);
  ranks.proxy().stall(true);
  expect_all_well(ranks.ends());
}

// What a worker sent when it joined, sent once more by somebody else.
TEST(TcpFaults, AHandshakeThatIsReplayedOpensNothing) {
  std::vector<char> hello;
  {
    ProxiedRanks ranks(2);
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1); });
    expect_all_well(ranks.ends());
    hello = ranks.proxy().recorded(FaultProxy::to_target);
    ASSERT_GT(hello.size(), 100u);
  }
  ProxiedRanks ranks(2);
  ranks.proxy().stall(true);  // rank 0 waits for rank 1
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 3); });
  const tcp::Address address =
      tcp::resolve(tcp::parse_host_port(ranks.run().options(0, 2).rendezvous)).front();
  std::atomic<bool> over{false};
  std::atomic<int> answers{0};
  std::thread attacker([&] {
    while (!over) {
      const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket.get(), address.raw(), address.length) != 0) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      (void)!::send(socket.get(), hello.data(), std::min<std::size_t>(hello.size(), 4000),
                    MSG_NOSIGNAL);
      std::array<char, 4096> bytes;
      while (::recv(socket.get(), bytes.data(), bytes.size(), 0) > 0) ++answers;
    }
  });
  while (answers < 20) std::this_thread::sleep_for(1ms);
  ranks.proxy().stall(false);
  expect_all_well(ranks.ends());
  over = true;
  attacker.join();
}

}  // namespace
}  // namespace skein

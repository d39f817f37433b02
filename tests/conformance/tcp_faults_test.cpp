// What networks do to connections, done to those of a run: nobody hangs, and whoever cannot go on
// says of whom and of what.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "fabric/survivors.h"
#include "fabric/tcp/address.h"
#include "proxy/proxied_ranks.h"
#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSilence = 2s;
const Limit kLimit = Limit::silence(kSilence);
constexpr std::size_t kCount = 300'000;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

float value_of(int rank, int round, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank * 31 + round)) % 1000);
}

// Sums over all ranks, again and again, and looks at every element of each.
Task<> sum_rounds(Fabric& fabric, int rounds, Duration pause = Duration(0)) {
  const auto memory = fabric.allocate(kCount);
  auto* values = static_cast<float*>(memory->span().data);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < kCount; ++i) values[i] = value_of(fabric.rank(), round, i);
    co_await fabric.all_reduce(0, memory->span(), kLimit);
    for (std::size_t i = 0; i < kCount; ++i) {
      float expected = 0;
      for (int rank = 0; rank < fabric.size(); ++rank) expected += value_of(rank, round, i);
      if (values[i] != expected) throw Error("another sum");
    }
    if (pause > Duration(0)) co_await fabric.loop().sleep_for(pause);
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
    EXPECT_LT(end.took, 20 * kSilence);
  }
}

// Waits until so many bytes have passed the proxy on their way to rank 0.
void wait_for_bytes(FaultProxy& proxy, std::uint64_t bytes) {
  for (int i = 0; i < 20'000 && proxy.passed(FaultProxy::to_target) < bytes; ++i)
    std::this_thread::sleep_for(1ms);
}

TEST(TcpFaults, BytesThatComeLateComeAllTheSame) {
  ProxiedRanks ranks(3);
  ranks.proxy().delay(15ms);
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 3); });
  expect_all_well(ranks.ends());
}

TEST(TcpFaults, AStallBelowTheLimitChangesNothing) {
  ProxiedRanks ranks(2);
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 20); });
  wait_for_bytes(ranks.proxy(), 2'000'000);
  ranks.proxy().stall(true);
  std::this_thread::sleep_for(kSilence / 4);
  ranks.proxy().stall(false);
  expect_all_well(ranks.ends());
}

TEST(TcpFaults, AStallAboveTheLimitEndsTheOperationThatWaits) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) { options.encrypt = encrypt; });
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000); });
    wait_for_bytes(ranks.proxy(), 2'000'000);
    ranks.proxy().stall(true);
    expect_lost(ranks.ends(), "silent");
  }
}

TEST(TcpFaults, AConnectionThatIsResetIsNoticedAtOnce) {
  for (const bool encrypt : {true, false}) {
    ProxiedRanks ranks(2, [&](TcpOptions& options) { options.encrypt = encrypt; });
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000); });
    wait_for_bytes(ranks.proxy(), 2'000'000);
    ranks.proxy().cut();
    expect_lost(ranks.ends(), "was lost");
  }
}

TEST(TcpFaults, AConnectionThatOneSideClosesIsNoticedAtOnce) {
  for (const auto way : {FaultProxy::to_target, FaultProxy::from_target}) {
    ProxiedRanks ranks(2);
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000); });
    wait_for_bytes(ranks.proxy(), 2'000'000);
    ranks.proxy().half_close(way);
    expect_lost(ranks.ends(), "was lost");
  }
}

TEST(TcpFaults, AByteThatChangesOnTheWayIsNoticedUnderTls) {
  for (const auto way : {FaultProxy::to_target, FaultProxy::from_target}) {
    ProxiedRanks ranks(2);
    ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000); });
    wait_for_bytes(ranks.proxy(), 1'000'000);
    ranks.proxy().corrupt_after(way, 1'234'567);
    expect_lost(ranks.ends(), "was lost");
  }
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
  ProxiedRanks ranks(2, [](TcpOptions& options) { options.least_silence = 1s; });
  ranks.start([](Fabric& fabric) -> Task<> {
    float value = 1;
    co_await fabric.loop().sleep_for(500ms);
    co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(600s));
    co_await fabric.loop().sleep_for(1ms);
    if (fabric.rank() == 0) co_await fabric.loop().sleep_for(8s);  // it comes too late
    co_await fabric.all_reduce(0, {&value, 1}, Limit::silence(600s));
  });
  wait_for_bytes(ranks.proxy(), 2000);
  std::this_thread::sleep_for(3s);  // heartbeats keep them together
  ranks.proxy().stall(true);
  auto ends = ranks.ends();
  EXPECT_TRUE(has(ends[1].error, "all_reduce")) << ends[1].error;
  EXPECT_TRUE(has(ends[1].error, "not even a heartbeat")) << ends[1].error;
  EXPECT_EQ(ends[1].peer, 0);
  EXPECT_GT(ends[1].took, 3s);
}

// Rank 1 stands still as a whole, as after SIGSTOP: the others sum without it.
TEST(TcpFaults, SurvivorsGoOnWithoutASilentOne) {
  ProxiedRanks ranks(3, [](TcpOptions& options) { options.least_silence = 1s; });
  ranks.start([](Fabric& fabric) -> Task<> {
    Survivors survivors(fabric, 1, 2);
    float value = 1;
    const int all = co_await survivors.sum({&value, 1}, fabric.loop().now() + 600s);
    if (all != 3 || value != 3) throw Error("somebody was missing");
    co_await fabric.loop().sleep_for(500ms);
    if (fabric.rank() == 1) std::this_thread::sleep_for(5s);
    value = 1;
    const int living = co_await survivors.sum({&value, 1}, fabric.loop().now() + 600s);
    if (fabric.rank() == 1) co_return;
    if (living != 2 || value != 2) throw Error("summed over " + std::to_string(living));
    if (survivors.lost() != std::vector<int>{1}) throw Error("lost another");
  });
  auto ends = ranks.ends();
  EXPECT_TRUE(ends[0].ok) << ends[0].error;
  EXPECT_TRUE(ends[2].ok) << ends[2].error;
  EXPECT_LT(ends[0].took, 60s);
}

// A message that never ends keeps nobody for ever.
TEST(TcpFaults, AByteNowAndThenIsNoProgress) {
  ProxiedRanks ranks(2);
  ranks.start([](Fabric& fabric) { return sum_rounds(fabric, 1'000'000); });
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
    co_await fabric.all_reduce(0, {&value, 1}, kLimit);
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
      co_await fabric.send(2, 2, {&value, 1}, kLimit);
    } else {
      for (int peer = 0; peer < 2; ++peer) {
        while (waiting < 2) co_await fabric.loop().sleep_for(1ms);
        co_await fabric.receive(2, peer, {&value, 1}, Limit::silence(10 * kSilence));
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

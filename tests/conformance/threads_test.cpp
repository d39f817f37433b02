// What may be called from the user's thread while the courier's carries messages.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "fabric/local/local_fabric.h"
#include "kernels/kernels.h"
#include "runtime/courier.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

Task<> sum_often(Fabric& fabric, int times, bool& done) {
  const auto heap = allocate_on_heap(10000);
  for (int i = 0; i < times; ++i) {
    co_await fabric.all_reduce(0, heap->span(), Limit::silence(60s));
    co_await fabric.exchange(1, 1 - fabric.rank(), heap->span(), heap->span(), Limit::silence(60s));
  }
  done = true;
}

Task<> nothing() { co_return; }

// One rank: its loop's thread stages messages while this thread allocates and asks.
void run_rank(const std::string& run_id, int rank) {
  constexpr int kTimes = 50;
  const SteadyClock clock;
  Loop loop(clock);
  LocalFabric fabric(loop, {run_id, rank, 2, 60s, {}});
  bool done = false;
  {
    Courier courier(loop, fabric.events());
    courier.with_loop([&] { loop.spawn_background(sum_often(fabric, kTimes, done)); });
    std::uint64_t sent = 0;
    for (bool ended = false; !ended;) {
      const auto memory = fabric.allocate(5000);
      fill(memory->span(), 1);
      fabric.progressed();
      EXPECT_GE(fabric.bytes_sent(), sent);
      sent = fabric.bytes_sent();
      std::this_thread::sleep_for(1ms);
      courier.with_loop([&] { ended = done; });
    }
    courier.wait(nothing());
  }
  loop.abandon_jobs();
}

TEST(Threads, TheUsersAllocatesAndAsksWhileTheCouriersCarries) {
  const std::string run_id = "threads-" + std::to_string(::getpid());
  std::thread other([&] { run_rank(run_id, 1); });
  run_rank(run_id, 0);
  other.join();
}

}  // namespace
}  // namespace skein

// Whoever waits carries: what a wait leaves behind when it ends before its task.
#include "runtime/courier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "skein/error.h"

namespace skein {
namespace {

Task<> fail() {
  throw IoError("a background failure", 3);
  co_return;
}

Task<> write_when(Signal& asked, float& into) {
  co_await asked.wait();
  into = 1;
}

// Else the task would write where the caller's buffer was.
TEST(Courier, ATaskEndsWithTheWaitThatABackgroundFailureEnds) {
  const SteadyClock clock;
  Loop loop(clock);
  Signal asked(loop);
  Courier courier(loop, nullptr);
  courier.with_loop([&] { loop.spawn_background(fail()); });
  auto buffer = std::make_unique<float>(0.0F);
  EXPECT_THROW(courier.wait(write_when(asked, *buffer)), IoError);
  EXPECT_FALSE(asked.awaited()) << "the task goes on after the wait has thrown";
  EXPECT_FALSE(loop.busy());
  buffer.reset();
  asked.notify_all();
  courier.post([] {});  // runs what can run: under a sanitizer, a late write is seen here
}

Task<> count(Loop& loop, std::atomic<int>& pieces, int all) {
  for (int piece = 0; piece < all; ++piece) {
    ++pieces;
    co_await loop.yield();
  }
}

Task<> nothing() { co_return; }

// An event source of which nothing ever comes.
class Silence final : public EventSource {
 public:
  std::uint32_t poll() override { return woken_.load(); }
  void wait(std::uint32_t ticket, Time) override { woken_.wait(ticket); }
  void wake() override {
    ++woken_;
    woken_.notify_all();
  }

 private:
  std::atomic<std::uint32_t> woken_{0};
};

// Else a worker that only ends a step would carry everybody's messages first.
TEST(Courier, AWaitEndsWithItsTaskAndLeavesTheRestBehind) {
  const SteadyClock clock;
  Loop loop(clock);
  Courier courier(loop, nullptr);
  std::atomic<int> pieces{0};
  courier.with_loop([&] { loop.spawn_background(count(loop, pieces, 1000)); });
  courier.wait(nothing());
  EXPECT_LE(pieces, 2);
  courier.post([] {});
  EXPECT_EQ(pieces, 1000) << "what was left behind goes on";
}

TEST(Courier, StepsBackBetweenPiecesOfLongWork) {
  const SteadyClock clock;
  Loop loop(clock);
  Silence events;
  Courier courier(loop, &events);
  std::atomic<int> pieces{0};
  constexpr int all = 1 << 30;  // more than anybody would wait for
  Job job;
  courier.post([&] { job = loop.spawn_background(count(loop, pieces, all)); });
  while (pieces == 0) std::this_thread::yield();
  courier.wait(nothing());
  EXPECT_LT(pieces, all);
  courier.with_loop([&] { job.abandon(); });
}

}  // namespace
}  // namespace skein

// Whoever waits carries: what a wait leaves behind when it ends before its task.
#include "runtime/courier.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
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
  void wait(std::uint32_t ticket, Time until) override {
    std::unique_lock lock(mutex_);
    const auto woken = [&] { return woken_ != ticket; };
    if (until == kNever)
      changed_.wait(lock, woken);
    else
      changed_.wait_for(lock, until - clock_.now(), woken);
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    ++woken_;
    changed_.notify_all();
  }

 private:
  const SteadyClock clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
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

Task<> forever(Loop& loop) {
  for (;;) co_await loop.sleep_for(std::chrono::milliseconds(10));
}

struct Stopped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(Courier, AsksTheProgramWhileItWaits) {
  const SteadyClock clock;
  Loop loop(clock);
  Silence events;
  Courier courier(loop, &events);
  const auto waiter = std::this_thread::get_id();
  std::string told;
  int asked = 0;
  courier.while_waiting = [&] {
    EXPECT_EQ(std::this_thread::get_id(), waiter) << "on the thread that waits";
    // The loop is free: another thread of the program may hold it meanwhile.
    std::thread([&] { courier.with_loop([] {}); }).join();
    if (++asked == 3) throw Stopped("the user presses Ctrl-C");
  };
  courier.on_interrupt = [&](const std::exception_ptr& why) {
    try {
      std::rethrow_exception(why);
    } catch (const Stopped& stopped) {
      told = stopped.what();
    }
  };
  EXPECT_THROW(courier.wait(forever(loop)), Stopped);
  EXPECT_EQ(told, "the user presses Ctrl-C");
  EXPECT_EQ(asked, 3);
  EXPECT_FALSE(loop.busy()) << "the task goes on after the wait has thrown";
  courier.while_waiting = nullptr;
  courier.wait(nothing());
}

// A wait that ends soon costs the program nothing.
TEST(Courier, AsksNothingInAShortWait) {
  const SteadyClock clock;
  Loop loop(clock);
  Courier courier(loop, nullptr);
  int asked = 0;
  courier.while_waiting = [&] { ++asked; };
  for (int i = 0; i < 1000; ++i) courier.wait(nothing());
  EXPECT_LE(asked, 1);
}

// The courier's thread is missing in a child of fork(): whoever waited for it there would wait for
// ever.
TEST(Courier, IsInertInAForkedChild) {
  const SteadyClock clock;
  Loop loop(clock);
  Silence events;
  auto courier = std::make_unique<Courier>(loop, &events);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    int code = 0;
    courier->post([&] { code |= 1; });
    courier->with_loop([&] { code |= 2; });
    try {
      courier->wait(nothing());
      code |= 4;
    } catch (const Error&) {
    }
    courier.reset();
    ::_exit(code);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  courier->wait(nothing());
}

}  // namespace
}  // namespace skein

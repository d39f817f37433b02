// Whoever waits carries: what a wait leaves behind when it ends before its task.
#include "runtime/courier.h"

#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace skein

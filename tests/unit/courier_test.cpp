// Whoever waits carries: what a wait leaves behind when it ends before its task.
#include "runtime/courier.h"

#include <gtest/gtest.h>

#include <memory>

#include "skein/error.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

Task<> fail_after(Loop& loop, Duration time) {
  co_await loop.sleep_for(time);
  throw IoError("a background failure", 3);
}

Task<> write_after(Loop& loop, Duration time, float& into) {
  co_await loop.sleep_for(time);
  into = 1;
}

// Else the task would write where the caller's buffer was.
TEST(Courier, ATaskEndsWithTheWaitThatABackgroundFailureEnds) {
  const SteadyClock clock;
  Loop loop(clock);
  Courier courier(loop, nullptr);
  courier.with_loop([&] { loop.spawn_background(fail_after(loop, 5ms)); });
  auto buffer = std::make_unique<float>(0.0F);
  EXPECT_THROW(courier.wait(write_after(loop, 30ms, *buffer)), IoError);
  float* const freed = buffer.get();
  const float before = *freed;
  std::this_thread::sleep_for(50ms);
  courier.post([] {});
  EXPECT_EQ(*freed, before) << "the task went on after the wait had thrown";
  EXPECT_FALSE(loop.busy());
  buffer.reset();
}

}  // namespace
}  // namespace skein

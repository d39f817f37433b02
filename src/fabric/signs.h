// When this worker last showed progress, its own or that of those it waits for: what it answers to
// those who wait for it.
#pragma once

#include <atomic>

#include "core/clock.h"

namespace skein {

class Signs {
 public:
  explicit Signs(Time now) : last_(now) {}

  Time last() const { return last_.load(std::memory_order_relaxed); }

  // This worker has come further. Any thread.
  void progressed() { pass_on(SteadyClock().now()); }

  // One that it waits for has, at `sign`. A sign that is only passed on keeps its time, so that
  // workers who wait for each other cannot keep each other waiting for ever.
  void pass_on(Time sign) {
    Time known = last();
    while (known < sign && !last_.compare_exchange_weak(known, sign, std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<Time> last_;
};

}  // namespace skein

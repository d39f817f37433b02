// Wakes a worker of this host: a futex in its shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "core/event_source.h"
#include "core/file_descriptor.h"
#include "core/loop.h"
#include "fabric/local/segment.h"

namespace skein::shm {

// Tells the owner of `header` that something may concern it. Costs a system call only if it sleeps.
// `bell` is its descriptor, if it sleeps on one.
void ring(Header& header, int bell);

// The owner's side. `bell()` is notified whenever it rang, and at least every kLookAround, so that
// those who wait can look whether their peers still live.
class Doorbell final : public EventSource {
 public:
  static constexpr Duration kLookAround = std::chrono::milliseconds(100);

  // With a descriptor, the owner may sleep on that in place of the futex.
  Doorbell(Loop& loop, Header& header, bool descriptor);

  std::uint32_t poll() override;
  void wait(std::uint32_t ticket, Time until) override;
  void wake() override { ring(header_, descriptor_.get()); }

  // For one that sleeps on other things too: from arm() on a ring makes the descriptor readable, as
  // epoll sees it at its edge; nobody reads it. False: it has rung since the poll that gave the
  // ticket.
  int descriptor() const { return descriptor_.get(); }
  bool arm(std::uint32_t ticket);

  Signal& bell() { return bell_; }

  // Called about every kLookAround, whatever rings.
  void look_around(std::function<void()> look) { look_ = std::move(look); }

  // Looks at `done` for about a microsecond if spinning pays at present: what peers on other cores
  // do in step with this one need not be waited for. True when it came true. Only from the loop.
  template <typename Done>
  bool briefly(Done done) const {
    if (spin_.load(std::memory_order_relaxed) != kMostSpin) return false;
    for (int look = 0; look < 40; ++look) {
      if (done()) return true;
      relax();
    }
    return false;
  }

 private:
  // A peer that runs on another core often answers within the one; sleeping and waking costs more.
  static constexpr Duration kMostSpin = std::chrono::microseconds(8);
  static constexpr Duration kLeastSpin = std::chrono::nanoseconds(300);

  static void relax();
  Duration next_spin();

  Header& header_;
  Signal bell_;
  FileDescriptor descriptor_;
  std::uint32_t seen_ = 0;
  Time looked_{}, looked_around_{};
  std::function<void()> look_ = [] {};
  std::atomic<Duration> spin_{kMostSpin};  // how long to spin before sleeping
  std::atomic<unsigned> waits_{0};
};

}  // namespace skein::shm

// Wakes a worker of this host: a futex in its shared memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/event_source.h"
#include "core/loop.h"
#include "fabric/local/segment.h"

namespace skein::local {

// Tells the owner of `header` that something may concern it. Costs a system call only if it sleeps.
void ring(Header& header);

// The owner's side. `bell()` is notified whenever it rang, and at least every kLookAround, so that
// those who wait can look whether their peers still live.
class Doorbell final : public EventSource {
 public:
  static constexpr Duration kLookAround = std::chrono::milliseconds(100);

  Doorbell(Loop& loop, Header& header) : header_(header), bell_(loop) {}

  std::uint32_t poll() override;
  void wait(std::uint32_t ticket, Time until) override;
  void wake() override { ring(header_); }

  Signal& bell() { return bell_; }

 private:
  Header& header_;
  Signal bell_;
  std::uint32_t seen_ = 0;
  Time looked_{};
  std::atomic<std::int64_t> spin_ns_{0};
};

}  // namespace skein::local

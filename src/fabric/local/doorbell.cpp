#include "fabric/local/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>

namespace skein::local {
namespace {

// A peer that runs on another core often answers within this; sleeping and waking costs more.
constexpr std::int64_t kMostSpin = 5000;  // ns
constexpr std::int64_t kLeastSpin = 300;

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void ring(Header& header) {
  header.doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (header.sleepers.load(std::memory_order_seq_cst) > 0)
    ::syscall(SYS_futex, word(header.doorbell), FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

std::uint32_t Doorbell::poll() {
  const std::uint32_t ticket = header_.doorbell.load(std::memory_order_acquire);
  const Time now = SteadyClock().now();
  if (ticket != seen_ || now - looked_ >= kLookAround) {
    seen_ = ticket;
    looked_ = now;
    bell_.notify_all();
  }
  return ticket;
}

void Doorbell::wait(std::uint32_t ticket, Time until) {
  const SteadyClock clock;
  const Time start = clock.now();
  until = std::min(until, start + kLookAround);
  // Spin only as long as spinning has paid lately: a host with more workers than cores learns not to.
  std::int64_t budget = spin_ns_.load(std::memory_order_relaxed);
  const Time spin_until = std::min(until, start + Duration(std::clamp(budget, kLeastSpin, kMostSpin)));
  while (clock.now() < spin_until) {
    if (header_.doorbell.load(std::memory_order_acquire) != ticket) {
      spin_ns_.store(kMostSpin, std::memory_order_relaxed);
      return;
    }
    relax();
  }
  spin_ns_.store(budget / 2, std::memory_order_relaxed);
  if (until <= clock.now()) return;
  header_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const auto ns = until.time_since_epoch().count();
  const timespec absolute{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, word(header_.doorbell), FUTEX_WAIT_BITSET, ticket, &absolute, nullptr,
            FUTEX_BITSET_MATCH_ANY);
  header_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace skein::local

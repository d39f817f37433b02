#include "fabric/local/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>

namespace skein::shm {
namespace {

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

void Doorbell::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void ring(Header& header) {
  header.doorbell.fetch_add(1, std::memory_order_seq_cst);
  // Whoever takes the mark wakes all sleepers: a woken one that has yet to get a core costs no
  // second system call.
  if (header.sleepers.load(std::memory_order_seq_cst) != 0 &&
      header.sleepers.exchange(0, std::memory_order_seq_cst) != 0)
    ::syscall(SYS_futex, word(header.doorbell), FUTEX_WAKE, std::numeric_limits<int>::max(),
              nullptr, nullptr, 0);
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

// Spins only as long as that has paid lately, so that a host with more workers than cores learns
// not to. Now and then it tries again: two workers that have both taken to sleeping wake each other
// too late for short spins to ever pay.
Duration Doorbell::next_spin() {
  constexpr unsigned kTryEvery = 32;
  if (waits_.fetch_add(1, std::memory_order_relaxed) % kTryEvery == 0) return kMostSpin;
  return spin_.load(std::memory_order_relaxed);
}

void Doorbell::wait(std::uint32_t ticket, Time until) {
  const SteadyClock clock;
  const Time start = clock.now();
  until = std::min(until, start + kLookAround);
  const Duration spin = next_spin();
  const Time spin_until = std::min(until, start + spin);
  while (clock.now() < spin_until) {
    if (header_.doorbell.load(std::memory_order_acquire) != ticket) {
      spin_.store(kMostSpin, std::memory_order_relaxed);
      return;
    }
    relax();
  }
  spin_.store(std::max(spin / 2, kLeastSpin), std::memory_order_relaxed);
  if (until <= clock.now()) return;
  header_.sleepers.store(1, std::memory_order_seq_cst);
  const auto ns = until.time_since_epoch().count();
  const timespec absolute{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, word(header_.doorbell), FUTEX_WAIT_BITSET, ticket, &absolute, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

}  // namespace skein::shm

#include "fabric/local/doorbell.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>

#include "skein/error.h"

namespace skein::shm {
namespace {

// How the owner sleeps, in Header::sleepers.
constexpr std::uint32_t kOnFutex = 1, kOnDescriptor = 2;

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

Doorbell::Doorbell(Loop& loop, Header& header, bool descriptor) : header_(header), bell_(loop) {
  if (!descriptor) return;
  descriptor_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!descriptor_.valid())
    throw Error(fmt::format("cannot make a descriptor to sleep on: {}", std::strerror(errno)));
}

void ring(Header& header, int bell) {
  header.doorbell.fetch_add(1, std::memory_order_seq_cst);
  // Whoever takes the mark wakes all sleepers: a woken one that has yet to get a core costs no
  // second system call.
  if (header.sleepers.load(std::memory_order_seq_cst) == 0) return;
  const std::uint32_t mark = header.sleepers.exchange(0, std::memory_order_seq_cst);
  if (mark & kOnFutex)
    ::syscall(SYS_futex, word(header.doorbell), FUTEX_WAKE, std::numeric_limits<int>::max(),
              nullptr, nullptr, 0);
  if (mark & kOnDescriptor) {
    const std::uint64_t one = 1;
    (void)!::write(bell, &one, sizeof(one));
  }
}

bool Doorbell::arm(std::uint32_t ticket) {
  header_.sleepers.fetch_or(kOnDescriptor, std::memory_order_seq_cst);
  return header_.doorbell.load(std::memory_order_seq_cst) == ticket;
}

std::uint32_t Doorbell::poll() {
  const std::uint32_t ticket = header_.doorbell.load(std::memory_order_acquire);
  const Time now = SteadyClock().now();
  if (ticket != seen_ || now - looked_ >= kLookAround) {
    seen_ = ticket;
    looked_ = now;
    bell_.notify_all();
  }
  if (now - looked_around_ >= kLookAround) {
    looked_around_ = now;
    look_();
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
  header_.sleepers.fetch_or(kOnFutex, std::memory_order_seq_cst);
  const auto ns = until.time_since_epoch().count();
  const timespec absolute{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, word(header_.doorbell), FUTEX_WAIT_BITSET, ticket, &absolute, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

}  // namespace skein::shm

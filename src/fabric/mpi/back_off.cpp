#include "fabric/mpi/back_off.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace skein::mpi {
namespace {

using namespace std::chrono_literals;

// Answers of a peer that is on another core come within this, and those of one that waits for this
// core after a few looks, each of which lets others have it. A sleep would take longer.
constexpr Duration kLively = 50us;
constexpr int kLivelyLooks = 16;
constexpr Duration kLeastNap = 2us;
constexpr int kShare = 8;

std::uint32_t* word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace

BackOff::BackOff(std::function<bool()> look, Duration longest_nap)
    : look_(std::move(look)), longest_nap_(longest_nap), moved_at_(SteadyClock().now()) {}

void BackOff::stir() {
  moved_at_.store(SteadyClock().now(), std::memory_order_relaxed);
  looks_.store(0, std::memory_order_relaxed);
}

std::uint32_t BackOff::poll() {
  const std::uint32_t ticket = bell_.load(std::memory_order_acquire);
  if (look_()) stir();
  return ticket;
}

// Another thread may drive the loop, and call MPI, while this one is here: it only sleeps.
void BackOff::wait(std::uint32_t ticket, Time until) {
  const Time now = SteadyClock().now();
  const Duration quiet = now - moved_at_.load(std::memory_order_relaxed);
  if (looks_.fetch_add(1, std::memory_order_relaxed) < kLivelyLooks || quiet < kLively) {
    ::sched_yield();
    return;
  }
  const Duration nap = std::min(std::max(quiet / kShare, kLeastNap), longest_nap_);
  until = std::min(until, now + nap);
  const auto ns = until.time_since_epoch().count();
  const timespec absolute{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, word(bell_), FUTEX_WAIT_BITSET_PRIVATE, ticket, &absolute, nullptr,
            FUTEX_BITSET_MATCH_ANY);
}

void BackOff::wake() {
  bell_.fetch_add(1, std::memory_order_acq_rel);
  ::syscall(SYS_futex, word(bell_), FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr,
            nullptr, 0);
}

}  // namespace skein::mpi

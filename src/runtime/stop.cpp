#include "skein/stop.h"

#include <signal.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace skein {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> requested{false}, urgent{false};
std::atomic<std::int64_t> first_interrupt{0};

std::int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

// One Ctrl-C may come twice: from the terminal, and from a launcher that passes it on.
void handle(int number) {
  constexpr std::int64_t kSameMs = 500;
  requested = true;
  if (number != SIGINT) {
    urgent = true;
    return;
  }
  std::int64_t never = 0;
  const std::int64_t now = now_ms();
  if (first_interrupt.compare_exchange_strong(never, now) || now - never < kSameMs) return;
  ::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);
}

}  // namespace

void stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

bool stop_requested() { return requested; }
bool stop_is_urgent() { return urgent; }

}  // namespace skein

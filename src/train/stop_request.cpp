#include "train/stop_request.h"

#include <signal.h>

#include <atomic>

namespace skein {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> requested{false}, urgent{false};

}  // namespace

void watch_for_stop_requests() {
  struct sigaction action {};
  action.sa_handler = [](int number) {
    requested = true;
    if (number != SIGINT) urgent = true;
  };
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

bool stop_requested() { return requested; }
bool stop_is_urgent() { return urgent; }

}  // namespace skein

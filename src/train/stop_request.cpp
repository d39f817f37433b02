#include "train/stop_request.h"

#include <signal.h>

#include <atomic>

namespace skein {
namespace {

// A signal handler can reach nothing else.
std::atomic<bool> requested{false};

}  // namespace

void watch_for_stop_requests() {
  struct sigaction action {};
  action.sa_handler = [](int) { requested = true; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return requested; }

}  // namespace skein

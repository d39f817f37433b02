#include "fabric/mpi/watchdog.h"

#include <fmt/format.h>

#include <cstdlib>

namespace skein::mpi {

Watchdog::Watchdog(std::string message, Duration limit)
    : thread_([this, message = std::move(message), limit] {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, limit, [this] { return over_; })) return;
        fmt::print(stderr, "skein: {}\n", message);
        std::_Exit(1);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace skein::mpi

// Ends the process, with a message, when a call that cannot be called off does not return.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/clock.h"

namespace skein::mpi {

class Watchdog {
 public:
  Watchdog(std::string message, Duration limit);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace skein::mpi

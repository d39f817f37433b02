// One run as a process of its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/signals.h"

namespace skein::compare {

struct ChildEnd {
  int code = 0;            // of its exit
  int signal = 0;          // or by which signal it died
  int stopped_by = 0;      // a signal that came to this process and was passed on; 0: none
  double seconds = 0;      // how long it ran
  std::string last_words;  // where it failed: the last lines of its output, as UTF-8
};

// Runs `argv` to its end, with all that it prints in the file `log`. Calls `tick` several times a
// second. A signal that asks this process to stop is passed on, and the child has 30 s to end by
// it; after a second one it is killed, with all that it started. It dies with this process.
// ConfigError, Error: it could not be started.
ChildEnd run_child(const std::vector<std::string>& argv, const std::filesystem::path& log,
                   SignalQueue& signals, const std::function<void(double seconds)>& tick);

}  // namespace skein::compare

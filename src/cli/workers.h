// A command that is both the launcher of worker processes and, started again by it, one of them.
#pragma once

#include <functional>

#include "cli/options.h"
#include "launch/environment.h"
#include "launch/launcher.h"

namespace skein {

// Starts this very command line as `workers` processes of `threads` threads each.
LaunchOptions launch_of_self(const Invocation& invocation, int workers, int threads = 1);

// Runs `body` as the worker that `placement` says and returns its exit code. The reason of a
// failure is left on the board, where the launcher looks for it; a user's error is thrown on.
int run_as_worker(const Placement& placement, const std::function<int()>& body);

}  // namespace skein

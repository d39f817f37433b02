// Training that is started anew from its last checkpoint when a worker was lost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "launch/launcher.h"
#include "train/options.h"

namespace skein {

struct RestartOptions {
  int most = 0;         // restarts of one run
  int min_workers = 0;  // hosts that are gone are left out while so many are left; 0: none is
};

// Does `launch`, the command of `invocation` as workers, and does it again from the last checkpoint
// in options.out as often as `restarts` allows. Says on standard error what was lost. Returns as
// launch() does.
int launch_with_restarts(const Invocation& invocation, const TrainOptions& options,
                         const LaunchOptions& launch, const RestartOptions& restarts);

// What the launcher tells workers of a run that was started anew; reads it into `options`.
void read_restarts(const char* text, TrainOptions& options);

}  // namespace skein

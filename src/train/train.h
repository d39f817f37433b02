// Training as the command line does it. No torch here, so that the command line can call it.
#pragma once

#include "train/options.h"

namespace skein {

// The exit code of a run that SIGTERM or SIGUSR1 has ended before its end, and that is to be
// started again: EX_TEMPFAIL of sysexits.h.
inline constexpr int kStoppedCode = 75;

// Runs one worker of the job to its end and returns the exit code. The launcher's environment says
// which worker of how many.
int run_training(const TrainOptions& options);

}  // namespace skein

// Training as the command line does it. No torch here, so that the command line can call it.
#pragma once

#include "train/options.h"

namespace skein {

// Runs one worker of the job to its end and returns the exit code. The launcher's environment says
// which worker of how many.
int run_training(const TrainOptions& options);

}  // namespace skein

// What runs on each host of a run: it starts the host's workers and tells the launcher of them.
#pragma once

#include <chrono>

namespace skein {

// How long the launcher and an agent wait for a sign of each other's life, unless told otherwise.
inline constexpr std::chrono::milliseconds kLauncherSilence{30000};

// Greets on `output`, then does what the launcher asks for on `input`, as agent_messages.h says.
// Returns when `input` ends, or some seconds after the last worker has; no worker outlives this
// function or this process. Throws IoError for what no launcher would send, when `output` is gone,
// and when nothing has come from the launcher for the time that it named in its last pulse, at
// first kLauncherSilence. Descriptors are made non-blocking.
void run_agent(int input, int output);

}  // namespace skein

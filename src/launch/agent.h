// What runs on each host of a run: it starts the host's workers and tells the launcher of them.
#pragma once

namespace skein {

// Greets on `output`, then does what the launcher asks for on `input`, as agent_messages.h says.
// Returns when `input` ends, or some seconds after the last worker has; no worker outlives this
// function or this process. Throws IoError for what no launcher would send, or when `output` is
// gone. Descriptors are made non-blocking.
void run_agent(int input, int output);

}  // namespace skein

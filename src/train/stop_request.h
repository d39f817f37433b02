// Ctrl-C and SIGTERM: a request to end the run well.
#pragma once

namespace skein {

// From now on the first SIGINT or SIGTERM only sets a flag.
void watch_for_stop_requests();
bool stop_requested();

}  // namespace skein

// Signals that ask a run to end well.
#pragma once

namespace skein {

// From now on SIGINT, SIGTERM and SIGUSR1 only set a flag. All ask the run to end after the same
// step on all workers. SIGINT is Ctrl-C: somebody who is there and has time. The others come from a
// system that wants its place back and soon sends SIGKILL, and that starts the run again later.
void watch_for_stop_requests();
bool stop_requested();
bool stop_is_urgent();  // one of the others has come

}  // namespace skein

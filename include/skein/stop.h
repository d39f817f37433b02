// Ctrl-C and the signals of cluster systems as a request to end well.
#pragma once

namespace skein {

// From now on SIGINT (Ctrl-C), SIGTERM and SIGUSR1 do not end this process but ask the run to end:
// Distributed::stopping() is true on all workers soon, in lockstep after the same step, and loops
// of Distributed::share() end by themselves. A second Ctrl-C, half a second or more after the
// first, kills. Any thread, any number of times.
void stop_on_signals();

// Whether one of these signals has come to this process.
bool stop_requested();

// Whether it was one that a system sends which wants its place back and soon sends SIGKILL
// (SIGTERM, SIGUSR1).
bool stop_is_urgent();

}  // namespace skein

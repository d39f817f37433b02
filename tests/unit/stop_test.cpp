// Signals that ask a run to end.
#include "skein/stop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace skein {
namespace {

// How a process ends that gets these signals, `pause` apart, and then exits with what it knows.
int status_after(const std::vector<int>& signals, std::chrono::milliseconds pause) {
  const pid_t child = ::fork();
  if (child == 0) {
    stop_on_signals();
    bool quiet = !stop_requested();
    for (const int signal : signals) {
      ::raise(signal);
      std::this_thread::sleep_for(pause);
    }
    ::_exit((quiet ? 0 : 4) + (stop_requested() ? 1 : 0) + (stop_is_urgent() ? 2 : 0));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Stop, SignalsAskAndDoNotEnd) {
  using std::chrono::milliseconds;
  EXPECT_EQ(WEXITSTATUS(status_after({}, milliseconds(0))), 0);
  EXPECT_EQ(WEXITSTATUS(status_after({SIGINT}, milliseconds(0))), 1);
  EXPECT_EQ(WEXITSTATUS(status_after({SIGTERM, SIGTERM, SIGUSR1}, milliseconds(0))), 3);
  EXPECT_EQ(WEXITSTATUS(status_after({SIGINT, SIGINT}, milliseconds(0))), 1)
      << "one Ctrl-C that came in two ways";
}

TEST(Stop, ASecondInterruptKills) {
  const int status = status_after({SIGINT, SIGINT}, std::chrono::milliseconds(550));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
}

}  // namespace
}  // namespace skein

// Starts the workers of one run, on this host or on several, and sees them to their end.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/remote_group.h"

namespace skein {

// A run that has ended because a worker failed or was lost, and not by the user's error or wish.
struct RunLoss {
  std::string why;           // who and how, as one sentence without its full stop
  std::int64_t samples = 0;  // that the run had done, as far as its workers have said
};

// What those who watch a run want to know.
struct LaunchEvent {
  std::string kind;  // "lost", "failed", "restart", "ended"
  int rank = -1;     // whom it is about, or -1
  std::string text;  // as the launcher says it
};

struct LaunchOptions {
  int workers = 1;
  std::vector<std::string> argv;  // the program, looked up in PATH, and its arguments

  // Where rank-K.log of ranks 1 and up goes (of all, with show_all). Empty: a fresh temporary
  // folder, which stays only when the run fails; with show_all, none.
  std::string log_dir;

  // Print the output of all ranks, every line with [rank] in front, instead of rank 0's alone.
  bool show_all = false;

  // A worker that dies or fails, but for a user's error (exit code 2), does not end the others.
  bool go_on = false;

  // With go_on, how long a worker that is stopped (by SIGSTOP, say) may keep the others waiting
  // once one of them has ended well. Then it is killed.
  std::chrono::milliseconds stopped_limit{10000};

  // From a worker's failure to SIGTERM for the others, so that the consequences of the failure
  // show who waited for whom; from SIGTERM to SIGKILL.
  std::chrono::milliseconds settle{300};
  std::chrono::milliseconds grace{3000};

  // From SIGKILL to the end of this launcher, where a worker of this host does not end: one that
  // waits in the kernel, for a device or a file server, cannot be killed and is left behind.
  std::chrono::milliseconds kill_limit{10000};

  // The exit code of workers that ended well, because they were told to, before their work was
  // done: launch() returns it when all that did not succeed have it. 0: there is none.
  int stopped_code = 0;

  // Asked after a failure: the command that continues the run, or nothing when there is none.
  std::function<std::string()> resume_hint;

  // Asked after such an end. Empty when the caller will start the run anew: then launch() reports
  // nothing and returns 1. Else why it will not, for the report.
  std::function<std::string(const RunLoss&)> why_not_anew;

  // Told as it happens; may be empty.
  std::function<void(const LaunchEvent&)> on_event;

  // Make a place for workers to meet over TCP: a port of the loopback interface.
  bool meeting_place = false;

  // Make a secret for those who meet; false: they have certificates, which extra_env names.
  bool secret = true;

  std::map<std::string, std::string> extra_env;  // wins over the environment of this process

  // Where the workers are, when not on this host alone: as many as `workers`, which always meet
  // over TCP and have an environment of their own host's, with extra_env.
  std::optional<RemoteOptions> remote;
};

// Runs options.workers copies of the program and returns when all have ended: 0 when all succeeded
// (with go_on, when one did), 2 when the first to fail exited with 2 (the user's error), 1 after
// any other failure, and 128 + the signal when the run was interrupted and the workers ended by it.
//
// Workers get SKEIN_RANK, SKEIN_SIZE, SKEIN_LOCAL_RANK, SKEIN_LOCAL_SIZE, SKEIN_RUN (new for every
// run) and SKEIN_BOARD, with meeting_place SKEIN_RENDEZVOUS and, with secret, SKEIN_SECRET_FILE,
// and OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1 unless these are set. Rank 0 has this process's
// standard output and error; no worker reads the terminal. Workers of other hosts are started by an
// agent there (remote_group.h), and everything else is as on one host.
//
// When one fails, the others are told to end (SIGTERM, after `grace` SIGKILL) and one block on
// standard error says who failed first, why, and who was waiting for whom; for exit code 2 just the
// error. With go_on one line says who was lost, and when rank 0 was, the end of what the first that
// succeeded wrote is printed in its place; a worker that is stopped when others have ended well is
// killed. SIGINT, SIGTERM, SIGHUP and SIGUSR1 to this process are passed on. The second
// one kills, but for SIGTERM and SIGUSR1 after one of these: SIGUSR1 is the warning that a time
// limit is near, and SIGTERM may come from several at once, a job's script and its system. Nothing
// the workers started is left when this function returns or throws, or this process dies; but see
// kill_limit. Nobody who leaves the output of this process unread keeps it from ending: after an
// interrupt, what is not taken for a second is dropped, and success is then 128 + the signal.
//
// Throws ConfigError when the program or the logs cannot be opened or this process may not have
// enough files open, and HostError when a host
// cannot be reached before the run has begun. Blocks signals of the calling thread meanwhile; meant
// for a process with one thread.
int launch(const LaunchOptions& options);

}  // namespace skein

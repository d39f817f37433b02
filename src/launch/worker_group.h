// The worker processes of a run, or of one host's part of it, wherever they are.
#pragma once

#include <poll.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "launch/crew.h"
#include "observe/board.h"

namespace skein {

// Which workers a host runs, and what they are told.
struct WorkerPlan {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;  // wins over that of the process that starts them
  int first_rank = 0;
  int workers = 1;  // ranks first_rank and up
  int size = 1;     // of the whole run
  std::string run_id;
  std::string rendezvous;  // where they meet over TCP; empty: they do not
  std::string secret;      // how; empty: with the certificates that `environment` names
};

// The descriptors that a worker reads and writes. They need not stay open after start().
struct WorkerStreams {
  int input = 0, output = 1, error = 2;
};

// Ranks are those of the run. Not thread-safe. The destructor ends whatever is left and returns
// when it is gone, or cannot be reached any more.
class WorkerGroup {
 public:
  virtual ~WorkerGroup() = default;

  // Starts the next rank. Throws ConfigError when the program cannot be started.
  virtual void start(int rank, const WorkerStreams& streams, const sigset_t& signal_mask) = 0;

  virtual int alive() const = 0;

  // What becomes ready when there is something to do for advance(); and when there is in any case.
  virtual void watch(std::vector<pollfd>& watched) const = 0;
  virtual Time next_turn() const { return kNever; }

  // Takes what has come. Throws Error when the run cannot begin.
  virtual void advance() {}

  // How the worker ended, or nullopt while it runs. Says so once.
  virtual std::optional<WorkerEnd> reap(int rank) = 0;

  // What the worker is doing, or was when it ended. It may be a while old, unless report_often()
  // was called.
  virtual BoardRecord record(int rank) const = 0;
  virtual bool stopped(int rank) const = 0;           // as by SIGSTOP
  virtual std::string host(int) const { return ""; }  // where that rank is; empty: on this host
  virtual void report_often() {}

  virtual void signal(int number) = 0;  // to every process; SIGKILL also ends what they started
  virtual void kill_one(int rank) = 0;  // SIGKILL
};

}  // namespace skein

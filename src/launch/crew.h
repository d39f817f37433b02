// The worker processes of one run, as children of this one. None outlives the crew.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace skein {

// How a worker is started.
struct WorkerStart {
  std::vector<std::string> argv;         // argv[0] is looked up in PATH
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  int input = 0;                         // what it gets as descriptors 0, 1 and 2
  int output = 1;
  int error = 2;
  std::vector<int> keep_open;  // more descriptors that it inherits under their own numbers
  sigset_t signal_mask{};      // as the worker should have it
};

// How a worker ended: by `signal`, or when that is 0 with exit code `code`. When its host was lost
// nobody knows, and `lost` says why.
struct WorkerEnd {
  int signal = 0;
  int code = 0;
  std::string lost{};

  bool failed() const { return signal != 0 || code != 0 || !lost.empty(); }
};

// All workers are in one process group of their own, so that the terminal's Ctrl-C comes to this
// process alone, which passes it on exactly once, and so that what the workers started themselves
// is reached too. The group's leader is a guardian that does nothing but wait for this process to
// vanish, even by kill -9, and then kill the group. A worker also dies at once with the thread that
// started it.
//
// Not thread-safe. The destructor kills whatever is left and returns when it is gone, or after two
// seconds: a process in uninterruptible sleep cannot be ended.
class Crew {
 public:
  Crew();
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // Starts the next rank. Throws ConfigError when the program cannot be started, Error when no
  // process can be made.
  void start(const WorkerStart& how);

  int size() const { return static_cast<int>(workers_.size()); }
  int alive() const;

  // Readable when the worker has ended; -1 once reap() has said so.
  int descriptor(int rank) const;

  // How the worker ended, or nullopt while it runs. Says so once.
  std::optional<WorkerEnd> reap(int rank);

  // Whether the worker is stopped, as by SIGSTOP. False once it has ended.
  bool stopped(int rank) const;

  // To every process of the group. The guardian outlives all but SIGKILL, which ends the group:
  // from then on its number may be somebody else's, so nothing more is sent to it.
  void signal(int number);

  // SIGKILL to one worker.
  void kill_one(int rank) const;

 private:
  struct Worker {
    pid_t pid;
    FileDescriptor ended;
  };

  bool group_is_ours() const;

  pid_t guardian_ = -1;
  FileDescriptor guardian_ended_;
  FileDescriptor lifeline_;  // closes with this process; the guardian waits for that
  std::vector<Worker> workers_;
  bool killed_ = false;
};

}  // namespace skein

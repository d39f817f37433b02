// The signals that a launcher handles, as a descriptor to poll.
#pragma once

#include <signal.h>

#include "core/file_descriptor.h"

namespace skein {

// Blocks SIGINT, SIGTERM, SIGUSR1, SIGTSTP and SIGHUP (this one not under nohup) in the calling
// thread as long as it lives.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int descriptor() const { return queue_.get(); }
  int next();  // a signal that has come, or 0
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t before_{};
  FileDescriptor queue_;
};

}  // namespace skein

// Tells the process in which an object was made from the children that fork() has copied it to.
//
// A child has the memory of its parent and none of its threads. What the parent shares with others
// (sockets, shared memory, a place in a run) is the parent's alone: a child must neither use nor
// close it.
#pragma once

#include <unistd.h>

namespace skein {

class HomeProcess {
 public:
  bool here() const { return ::getpid() == process_; }

 private:
  pid_t process_ = ::getpid();
};

}  // namespace skein

// MPI in this process, which can be started and ended once: there is one of these.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "fabric/mpi/farewell.h"

namespace skein::mpi {

class Session {
 public:
  static Session& of_this_process();

  // Starts MPI unless the program has. Then this process also ends it when it exits with code 0;
  // with another code it does not, and the launcher ends the others. Throws ConfigError when MPI
  // has been ended, or allows calls of one thread alone.
  void start(Duration patience);

  // A communicator like that of all ranks. All of them call it; IoError when one does not.
  MPI_Comm communicator(Duration patience);

  // A fabric has come to be.
  void begin() { ++fabrics_; }

  // One has ended: takes care of what it has left.
  void keep(std::unique_ptr<Farewell> farewell);

  // Drops what has ended; whether nothing is left.
  bool tidy();

 private:
  Session() = default;
  static void at_exit(int status, void* session);
  static int at_finalize(MPI_Comm, int, void*, void* session);
  bool end_farewells();

  bool ready_ = false;
  int fabrics_ = 0;             // that are in use
  pid_t process_ = ::getpid();  // children have this object, but not MPI
  std::vector<std::unique_ptr<Farewell>> farewells_;
};

}  // namespace skein::mpi

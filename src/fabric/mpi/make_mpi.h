// The fabric of workers that mpirun or srun has started, on the MPI that the build has.
//
// docs/mpi.md says how to start them and what holds when one fails.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "fabric/fabric.h"
#include "launch/environment.h"

namespace skein {

struct MpiOptions {
  // What the launcher's environment says: MPI must say the same.
  Placement placement;

  // The longest wait for all to join, and, when this process ends, for an answer of those that go
  // on.
  Duration patience = std::chrono::seconds(60);

  // MPI makes progress only when it is called. The longest sleep between two looks at it.
  Duration longest_nap = std::chrono::milliseconds(1);
};

// Why this build has no such fabric, and how to get it; empty when it has.
std::string why_no_mpi();

// The MPI that this build has, such as "Open MPI v4.1.4"; empty where there is none.
std::string mpi_library();

// Starts MPI, unless the program has, and blocks until all workers are there. A process in which
// Skein started MPI ends it when it exits with code 0. Throws ConfigError when another program than
// this MPI's launcher has started the workers, or when the program has started MPI for one thread
// alone; the process ends, with a message, when MPI does not start within the patience.
std::unique_ptr<Fabric> make_mpi_fabric(Loop& loop, const MpiOptions& options);

}  // namespace skein

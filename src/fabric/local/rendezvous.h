// How the workers of one host find each other: rank 0 listens on an abstract Unix socket named
// after the run, the others bring their shared memory and get everybody's.
#pragma once

#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_descriptor.h"

namespace skein::shm {

struct Peer {
  FileDescriptor segment;
  FileDescriptor process;  // becomes readable when the worker's process ends; may be missing
  FileDescriptor bell;     // what it sleeps on; may be missing
  int pid = 0;             // as it knows itself
};

// Blocks until all `size` workers of `run_id` have met; returns them in order of rank, the caller
// included. Only processes of the same user are admitted. Throws IoError, naming the missing ranks,
// when `deadline` passes first, wherever a peer has come to a stop.
std::vector<Peer> meet(const std::string& run_id, int rank, int size, int segment_fd,
                       Deadline deadline, int bell_fd = -1);

}  // namespace skein::shm

// A stand-in for NCCL on toy devices: its functions, among processes that a test forks.
//
// Operations are work on a rank's toy queue that waits there for the other ranks', as NCCL's
// kernels do: whoever launches in another order than its peers finds out, and whoever waits for one
// that does not come waits until it is aborted. What is launched is on the queue only after a
// while.
#pragma once

#include "fabric/nccl/api.h"

namespace skein::toy {

// What goes wrong on a rank. Set in its process.
struct NcclTrouble {
  bool never_joins = false;     // its communicator is not made
  int error_after = -1;         // groups that it launches before NCCL says that the system failed
  int never_launches = -1;      // the number of the group that it never puts on its queue
  bool abort_hangs = false;     // though what is under way ends
  int answers_in_progress = 2;  // to questions about what has just been launched
};
NcclTrouble& nccl_trouble();

// How many groups this process has launched.
int nccl_groups();

// Before the ranks of a test are forked: what they share. At most kMostNcclRanks of them, and as
// many communicators, one after the other.
inline constexpr int kMostNcclRanks = 4;
void make_nccl_hub();

const nccl::Api& toy_nccl();

}  // namespace skein::toy

// What is left of a fabric whose worker has left the run while others go on: its packets are
// delivered, and MPI must not end before all have left.
#pragma once

#include <memory>
#include <vector>

#include "core/clock.h"
#include "fabric/mpi/mail.h"

namespace skein::mpi {

class Farewell {
 public:
  // `left` says of each rank whether it has left before.
  Farewell(std::unique_ptr<Mail> mail, std::vector<bool> left, bool failed, Duration patience);

  // Sends, receives, and asks those who have not left whether they are still there. True: all have
  // left and have all that was sent to them.
  bool poll();

  // Waits until that is so. False: a worker has failed, or one has not answered for as long as the
  // patience; `who` is that one.
  bool wait(int& who);

 private:
  bool take(const Arrived& arrived);
  void ask(Time now);

  std::unique_ptr<Mail> mail_;
  std::vector<bool> left_;
  std::vector<Time> heard_;
  bool failed_;
  const Duration patience_;
  Time asked_{};
};

}  // namespace skein::mpi

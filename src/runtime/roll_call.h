// Who has come to a call and who has not, when it has waited too long for somebody.
//
// Workers of one call wait for each other in many ways: whom one of them waits for may have come,
// and wait itself. So each that has waited a while answers who asks how far it has come, and one
// that gives up asks all. Lives on the fabric's loop: only what runs there, or nobody, may use it.
#pragma once

#include <cstdint>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

class RollCall {
 public:
  // Both channels are used by nothing else.
  RollCall(Fabric& fabric, Channel questions, Channel answers, Duration patience);

  // Runs `task`, this worker's next call, and listens for questions when it takes long.
  Task<> attend(Task<> task);

  // Ranks of the fabric that have not come to this worker's present call, in ascending order.
  Task<> missing(std::vector<int>& ranks);

 private:
  Task<> listen_later();
  Task<> answer(int peer);

  Fabric& fabric_;
  Channel questions_, answers_;
  Duration slow_;           // a call that takes longer is listened in
  std::int64_t calls_ = 0;  // of this worker, with the present one
  std::vector<ScopedJob> listening_;
};

}  // namespace skein

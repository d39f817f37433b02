// Who has come to a call and who has not, when it has waited too long for somebody, and what those
// who have not come are doing.
//
// Workers of one call wait for each other in many ways: whom one of them waits for may have come,
// and wait itself. So each that has waited a while answers who asks how far it has come and in
// what it is, and one that gives up asks all. Lives on the fabric's loop: only what runs there, or
// nobody, may use it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace skein {

class RollCall {
 public:
  // Both channels are used by nothing else.
  RollCall(Fabric& fabric, Channel questions, Channel answers, Duration patience);

  // Runs `task`, this worker's next call, which is part of `what`, and listens for questions when
  // it takes long.
  Task<> attend(Task<> task, std::string what);

  // The same for what is no call that all workers count, such as a step.
  Task<> attend_uncounted(Task<> task, std::string what);

  // What another rank answered.
  struct Standing {
    int rank = 0;
    bool answered = false;
    bool gone = false;    // it has left or failed meanwhile, perhaps since it has given up itself
    bool came = false;    // to this worker's present call, or beyond
    bool inside = false;  // it is in `what`; else in the program's own code, and `what` was before
    std::string what;     // as that worker has named it; empty before its first
  };

  // Every other rank's, in ascending order, as far as it answers within `patience`.
  Task<> ask(std::vector<Standing>& standings, Duration patience);

  // How long ranks may take to answer, those that came a moment ago included.
  Duration patience_with_late_ones() const { return 3 * slow_; }
  Duration patience_with_listeners() const { return slow_; }

 private:
  struct Answer;
  class Inside;

  Task<> listen_later();
  Task<> answer(int peer);

  Fabric& fabric_;
  Channel questions_, answers_;
  Duration slow_;           // a call that takes longer is listened in
  std::int64_t calls_ = 0;  // of this worker, with the present one
  std::string what_;        // the present call's name, or the last one's
  bool inside_ = false;
  std::vector<ScopedJob> listening_;
};

}  // namespace skein

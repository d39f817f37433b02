// The inside of a Job. Only the loop includes this.
#pragma once

#include "core/loop.h"

namespace skein::detail {

class JobState : public std::enable_shared_from_this<JobState> {
 public:
  JobState(Loop& loop, Task<> task, bool background)
      : loop(loop), task(std::move(task)), ended(loop), background(background) {}

  // Called by the outermost task's last breath: its frame is still in use, so it is freed later.
  void root_finished() noexcept;
  void cancel();
  void abandon();  // frees the coroutine where it waits

  Loop& loop;
  Task<> task;
  Signal ended;
  bool background;
  bool finished = false;
  bool cancelled = false;
  Waiter* waiter = nullptr;  // where the innermost coroutine is suspended
};

}  // namespace skein::detail

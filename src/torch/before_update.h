// before_update(): the user's own code in the middle of an update, on the thread that waits for it.
#pragma once

#include <functional>

#include "runtime/courier.h"
#include "skein/averaged_gradients.h"
#include "torch/gradient_source.h"

namespace skein {

// For the user's thread.
class BeforeUpdate {
 public:
  // All outlive it.
  BeforeUpdate(const Binding& binding, Worker& worker, Courier& courier, const TorchStream& stream)
      : worker_(worker),
        courier_(courier),
        source_(binding, worker, courier, stream),
        changed_(worker.loop()) {}

  // From the next update on `change` is called; empty: nothing.
  void set(std::function<void(AveragedGradients&)> change);

  // As Courier::wait(), for a task that may ask the user on its way. Calls `abandoned` before it
  // throws what the user or the wait threw while the task had not ended: it never will.
  void wait(Task<> task, const std::function<void()>& abandoned);

 private:
  Task<> ask_user(AveragedGradients& gradients);
  Task<> announced(Task<> task, bool& ended);
  Task<> asked_or(const bool& ended);

  Worker& worker_;
  Courier& courier_;
  std::function<void(AveragedGradients&)> change_;
  AveragedGradients* asked_ = nullptr;  // what the user's thread is to look at
  GradientSource source_;               // and what it may do to it
  Signal changed_;                      // asked_ changed, or what the user waits for has ended
};

}  // namespace skein

// Which gradients of the step under way are complete, which are on their way to the other workers,
// and whether the user's code touched any of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plan/bucket_plan.h"
#include "torch/binding.h"
#include "torch/read_hook.h"

namespace skein {

// A bucket that leaves while backward goes on is summed in the very memory that `.grad` shows. So
// whoever reads or writes a complete gradient before step(), as clip_grad_norm_ does, would see or
// change half a sum, and replicas would part.
//
// In the first step with gradients nothing leaves. When the user's code touches a complete gradient
// in that step, or later one that has not left, all buckets stay here until step() from then on.
// Touching one that has left cannot be undone: end() says so.
//
// Operators are seen (see ReadHook), and gradients that were replaced; not writes through
// data_ptr(). What autograd adds to gradients that are not complete yet is nobody's touch.
//
// begin(), add() and end() are called by one thread at a time; operators may run on any.
class StepGradients {
 public:
  explicit StepGradients(const Binding& binding);

  // The binding has another arena now. Only between steps.
  void arena_changed();

  // A step begins that has `passes` backward passes. `sends`: the strategy sends in backward;
  // `weight_known`: so it does in this step. `plan` must outlive the step. No gradients are
  // expected of parameters that need none now; returns the buckets that have no others, if they may
  // leave.
  std::vector<int> begin(const BucketPlan& plan, int passes, bool sends, bool weight_known);

  // A backward pass added the slot's gradient. Returns the bucket if that made it complete and it
  // may leave now; else -1. ConfigError when the slot's gradient was complete before, or not
  // expected and its bucket has left.
  int add(int slot);

  struct Touch {
    int slot;
    bool left;  // too late; else nothing leaves before step() from now on
  };

  // step() was called: nothing is watched any more. What was touched since begin(), if anything;
  // what had left before what had not.
  std::optional<Touch> end();

 private:
  enum class Overlap { untried, on, off };

  void look_for_departures();
  bool is_complete(int slot) const { return arrivals_[static_cast<std::size_t>(slot)] >= passes_; }
  bool has_left(int slot) const { return plan_->bucket_of(slot) < left_; }
  void on_touch(int slot);
  void note(int slot);

  const Binding& binding_;
  const BucketPlan* plan_ = nullptr;
  Overlap overlap_ = Overlap::untried;
  int passes_ = 1;
  bool watching_ = false;  // touches matter in this step
  bool leaving_ = false;   // complete buckets may leave
  bool some_complete_ = false;
  std::vector<int> arrivals_;   // per slot
  std::vector<bool> expected_;  // likewise
  std::vector<int> missing_;    // gradients still to come, per bucket
  int left_ = 0;                // buckets leave in order: the first so many have

  std::mutex mutex_;  // of what follows and what on_touch() reads
  std::optional<int> touched_, touched_too_late_;
  std::unique_ptr<ReadHook> hook_;  // last: its calls use the rest
};

}  // namespace skein

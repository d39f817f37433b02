// Which gradients of the step under way are complete, which are on their way to the other workers,
// and whether the user's code touched any of them.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "plan/bucket_plan.h"
#include "strategy/program.h"

namespace skein {

// A bucket that leaves while backward goes on is summed in the very memory that the user sees as
// its gradients. So whoever reads or writes a complete gradient before the step ends, to clip it
// for example, would see or change half a sum, and replicas would part.
//
// Where the program sees such touches, nothing leaves in the first step with gradients. When the
// user's code touches a complete gradient in that step, or later one that has not left, all buckets
// stay here until the step's end from then on. A touch of one that has left cannot be undone: end()
// says so. Where the program does not see touches, buckets leave from the first step on.
//
// begin(), add() and end() are called by one thread at a time; on_touch() by any.
class StepGradients {
 public:
  explicit StepGradients(Program& program);

  // A step begins that has `passes` backward passes. `sends`: the strategy sends in backward;
  // `weight_known`: so it does in this step. `arena` and `plan` must outlive the step. Returns the
  // buckets for which the program expects no gradients, if they may leave.
  std::vector<int> begin(const Arena& arena, const BucketPlan& plan, int passes, bool sends,
                         bool weight_known);

  // A backward pass added the slot's gradient. Returns the bucket if that made it complete and it
  // may leave now; else -1. ConfigError when the slot's gradient was complete before, or not
  // expected and its bucket has left.
  int add(int slot);

  // Somebody reads or writes the slot's gradient. What backward itself adds to one that is not
  // complete yet is nobody's touch.
  void on_touch(int slot);

  struct Touch {
    int slot;
    bool left;  // too late; else nothing leaves before the step's end from now on
  };

  // Backward is over: nothing is watched any more. What was touched since begin(), if anything;
  // what had left before what had not.
  std::optional<Touch> end();

 private:
  enum class Overlap { untried, on, off };

  void look_for_departures();
  int slots() const { return static_cast<int>(arrivals_.size()); }
  const std::string& name(int slot) const { return arena_->slots()[index(slot)].name; }
  bool is_complete(int slot) const { return arrivals_[index(slot)] >= passes_; }
  bool has_left(int slot) const { return plan_->bucket_of(slot) < left_; }
  void note(int slot);
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Program& program_;
  const Arena* arena_ = nullptr;
  const BucketPlan* plan_ = nullptr;
  Overlap overlap_;
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
};

}  // namespace skein

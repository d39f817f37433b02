// How long the parts of a virtual worker's step take.
#pragma once

#include <vector>

#include "core/arena.h"
#include "plan/bucket_plan.h"
#include "sim/profile.h"

namespace skein::sim {

// A profile laid over the slots of an arena: what forward takes once it may read a slot's
// parameters and before it needs the next one's, and what backward takes before the slot's gradient
// is complete.
class ComputePlan {
 public:
  // Layer by layer where the profile's tensors are the arena's; else the profile's totals, spread
  // over the slots by their size.
  ComputePlan(const Profile& profile, const Arena& arena);

  struct Piece {
    Duration forward{}, backward{};
  };
  // The same, added up by bucket; and what is left when the last bucket is done.
  std::vector<Piece> by_bucket(const BucketPlan& plan) const;
  Duration backward_tail() const { return backward_tail_; }

 private:
  std::vector<Piece> slots_;
  Duration backward_tail_{};
};

// Spreads a micro-batch that takes `step` as a real run with --emulate-step does: a third is
// forward, gradients come in proportion to the tensors' sizes, and updates are in it.
Profile emulated_profile(const Profile& shape, Duration step, std::int64_t batch);

}  // namespace skein::sim

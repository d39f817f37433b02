// Turns gradients into new parameters, range by range.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/span.h"
#include "optimize/groups.h"
#include "optimize/owned_state.h"

namespace skein {

// How one update is to be made; the same on every worker that takes part in it.
struct UpdateContext {
  double learning_rate = 0;
  float gradient_scale = 1;  // gradients are multiplied by this first (averaging, clipping)
  std::int64_t step = 1;     // number of this update in the run, from 1
  bool skip = false;         // whoever calls the optimizer only clears the gradients instead
  std::shared_ptr<const Groups> groups = nullptr;  // null: the whole plane alike

  // The number of this update among those that the parameters of a group have had, from 1, as torch
  // counts them: for AdamW's bias correction. Updates that were skipped are in neither number.
  std::int64_t step_of(const GroupRule& rule) const {
    SKEIN_CHECK(rule.missed < step, "update number {}, of which {} were missed", step, rule.missed);
    return step - rule.missed;
  }
};

// Elementwise, as a rule: the update of an element depends on its own gradient, parameter and state
// alone. So a plane may be updated in any ranges and any order, once per element and step, with the
// same result. Not thread-safe.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates `range` of the whole plane `parameters` from the same range of `gradients`, and leaves
  // those gradients zero for the next step. Both planes have the arena's size.
  // All of `range` must be owned. Where a group is frozen only the gradients change.
  virtual void update(Range range, Span parameters, Span gradients,
                      const UpdateContext& context) = 0;

  // Whether it looks at tensors as wholes: then ranges must hold whole slots of the arena
  // (checked).
  virtual bool per_tensor() const { return false; }

  // The state of what it owns.
  virtual OwnedState& owned_state() = 0;

  // Limits state to `ranges` (sorted, disjoint) and drops the rest: a worker that updates only its
  // shard needs only the shard's state. Kept ranges keep their values; new ones start at zero.
  // Before the first call the whole plane is owned.
  void own(std::vector<Range> ranges) { owned_state().own(std::move(ranges)); }
  const std::vector<Range>& owned() { return owned_state().owned(); }

  // State vectors by name ("momentum"; "exp_avg", "exp_avg_sq"), each laid out as the owned ranges
  // one after the other. Empty for plain SGD. For checkpoints: write through the spans to restore.
  std::map<std::string, Span> state() { return owned_state().vectors(); }
};

}  // namespace skein

// Adam with decoupled weight decay, equal to torch::optim::AdamW.
#pragma once

#include "optimize/optimizer.h"
#include "optimize/owned_state.h"

namespace skein {

struct AdamwOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

// State "exp_avg" and "exp_avg_sq". The number of updates made is the caller's:
// UpdateContext::step_of().
class Adamw final : public Optimizer {
 public:
  // For a plane of `size` elements.
  // Throws ConfigError for options outside their limits. epsilon must be above 0 in float32 too:
  // the arena's gaps, with gradients always zero, would otherwise become 0 / 0.
  Adamw(std::size_t size, const AdamwOptions& options, Allocate allocate = allocate_on_heap);

  void update(Range range, Span parameters, Span gradients, const UpdateContext& context) override;
  OwnedState& owned_state() override { return state_; }

 private:
  AdamwOptions options_;
  OwnedState state_;
};

}  // namespace skein

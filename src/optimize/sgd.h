// Stochastic gradient descent, equal to torch::optim::SGD.
#pragma once

#include "optimize/optimizer.h"
#include "optimize/owned_state.h"

namespace skein {

struct SgdOptions {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool groups_have_momentum = false;  // some group, if not the rest: state is kept
};

// State "momentum", one vector, only when momentum is not 0 everywhere. torch starts it at the
// first gradient it sees, which is momentum · 0 + gradient: zeroed memory gives the same bits.
class Sgd final : public Optimizer {
 public:
  // For a plane of `size` elements.
  // Throws ConfigError for options outside their limits, Nesterov without momentum included.
  Sgd(std::size_t size, const SgdOptions& options, Allocate allocate = allocate_on_heap);

  void update(Range range, Span parameters, Span gradients, const UpdateContext& context) override;
  OwnedState& owned_state() override { return state_; }

 private:
  SgdOptions options_;
  OwnedState state_;
};

}  // namespace skein

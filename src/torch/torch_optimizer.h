// Any elementwise torch::optim on ranges of an arena.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

#include "optimize/optimizer.h"
#include "optimize/owned_state.h"

namespace skein {

// Runs a torch optimizer with the bits it would give on separate tensors. Its state is kept here,
// flat, so ranges may be cut differently from one step to the next.
//
// Works for SGD, Adam, AdamW, RMSprop and Adagrad with one parameter group. Learning rate and step
// count come from the update's context; whatever else was set when it was made holds. At step 1
// state starts as torch starts it.
class TorchOptimizer final : public Optimizer {
 public:
  using Factory = std::function<std::unique_ptr<torch::optim::Optimizer>(
      std::vector<torch::Tensor> parameters)>;

  // `make` is called once, with one tensor. Throws ConfigError when it returns another optimizer
  // (LBFGS looks at all parameters together), one that does not hold exactly that tensor, or one
  // that makes something else of a zero with zero gradient (the arena's gaps must stay zero).
  // State is where `allocate` puts it: where the planes are.
  TorchOptimizer(std::size_t plane_size, const Factory& make, Allocate allocate = allocate_on_heap);

  void update(Range range, Span parameters, Span gradients, const UpdateContext& context) override;

  // Torch's names, except that SGD's momentum_buffer is "momentum", as in Skein's own.
  OwnedState& owned_state() override { return *state_; }

  // What was made, with its options except the learning rate: "SGD with momentum 0.9, …".
  std::string description() const;

 private:
  // One vector of state as the torch optimizer holds it.
  struct Held {
    torch::Tensor* tensor;
    float initial;
  };

  void find_state();
  void bind_state(Range range_of_state, const UpdateContext& context);

  std::size_t plane_size_;
  Allocate allocate_;
  torch::Tensor parameter_;  // what the torch optimizer holds: pointed at each range in turn
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<Held> held_;
  std::unique_ptr<OwnedState> state_;  // its vectors in the order of held_
  double dampening_ = 0;
};

}  // namespace skein

// Any torch::optim that is elementwise, or looks at one tensor at a time, on ranges of an arena.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>

#include "optimize/optimizer.h"
#include "optimize/owned_state.h"
#include "skein/torch_optimizer.h"
#include "torch/optimizer_view.h"

namespace skein {

// A tensor's place in a plane.
struct TensorPlace {
  Range range;
  std::vector<std::int64_t> shape;
};

// Runs a torch optimizer with the bits it would give on separate tensors. Its state is kept here,
// flat, so ranges may be cut differently from one step to the next.
//
// Works for SGD, Adam, AdamW, RMSprop, Adagrad and what is Elementwise or PerTensor, with one
// parameter group of torch's. Learning rate, step count (each group's own) and groups come from the
// update's context; whatever else was set when it was made holds. At step 1 state starts as torch
// starts it.
class TorchOptimizer final : public Optimizer {
 public:
  using Factory = MakeTorchOptimizer;

  // `make` is called with one tensor. Throws ConfigError when it returns an optimizer that is
  // neither elementwise nor PerTensor (LBFGS looks at all parameters together), one that does not
  // hold exactly that tensor, or an elementwise one that makes something else of a zero with zero
  // gradient (the arena's gaps must stay zero). State is where `allocate` puts it: where the planes
  // are. `tensors`, in the order of the plane, is for what is PerTensor.
  TorchOptimizer(std::size_t plane_size, const Factory& make, Allocate allocate = allocate_on_heap,
                 std::vector<TensorPlace> tensors = {});

  void update(Range range, Span parameters, Span gradients, const UpdateContext& context) override;
  bool per_tensor() const override { return per_tensor_; }

  // Torch's names, except that SGD's momentum_buffer is "momentum", as in Skein's own.
  OwnedState& owned_state() override { return *state_; }

  // What was made, with its options except the learning rate: "SGD with momentum 0.9, …".
  std::string description() const;
  const torch::optim::OptimizerOptions& options() const {
    return optimizer_->param_groups()[0].options();
  }

  // ConfigError where its options have not what groups change.
  void check(const ParameterGroups& groups) const;

 private:
  struct Untried {};  // whether it is elementwise
  TorchOptimizer(Untried, std::size_t plane_size, const Factory& make, Allocate allocate);
  static void try_in_pieces(const Factory& make);
  // One vector of state as the torch optimizer holds it.
  struct Held {
    torch::Tensor* tensor;
    float initial;
  };

  void find_state();
  void set_options(const GroupRule& rule, const UpdateContext& context);
  void update_tensors(const GroupRule& rule, Span parameters, Span gradients,
                      const UpdateContext& context);
  void update_piece(Range piece, Range piece_of_state, c10::IntArrayRef shape, Span parameters,
                    Span gradients, float gradient_scale, std::int64_t step);
  void bind_state(Range range_of_state, c10::IntArrayRef shape, std::int64_t step);

  std::size_t plane_size_;
  Allocate allocate_;
  std::vector<TensorPlace> tensors_;
  bool per_tensor_ = false;
  torch::Tensor parameter_;  // what the torch optimizer holds: pointed at each range in turn
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<Held> held_;
  std::unique_ptr<OwnedState> state_;                       // its vectors in the order of held_
  double dampening_ = 0, weight_decay_ = 0, momentum_ = 0;  // as made
};

}  // namespace skein

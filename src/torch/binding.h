// A module whose trainable parameters live in an Arena.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "torch/named_tensor.h"

namespace skein {

// Moves every trainable parameter of a module into one arena, one slot each, in registration order
// until reorder() says otherwise, and points the parameter (and its `.grad`) at its place there.
// The module is used as before: the same tensors, names and shapes. All parameters alias one
// storage, all gradients another.
//
// A tensor registered under several names (tied weights) has one slot, known by its first name.
// Frozen parameters (requires_grad = false) and buffers stay where they are.
//
// The destructor gives parameters and gradients storage of their own again. A view of a parameter
// that the user kept beyond that stays valid: it holds the arena's memory.
//
// Not thread-safe, except that gradients of different slots may be rebound at the same time.
class Binding {
 public:
  // Throws ConfigError, with the module untouched, when a trainable parameter is not a dense
  // float32 leaf tensor, when not all are on one device, when two different tensors share memory
  // (binding would untie them), or when there is nothing to train. Gradients that exist already are
  // kept.
  Binding(torch::nn::Module& module, Allocate allocate);  // on the parameters' device
  ~Binding();
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  // Moves parameters and gradients to a new arena whose slot i is slot order[i] of the present one.
  // `order` holds each slot once. Views of a parameter that the user kept stay valid, but are views
  // of the old arena.
  void reorder(const std::vector<int>& order);

  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }

  int slots() const { return static_cast<int>(bound_.size()); }
  const torch::Tensor& parameter(int slot) const { return at(slot).parameter; }

  // Every name the parameter is registered under, the first one first.
  const std::vector<std::string>& names_of_slot(int slot) const { return at(slot).names; }

  // What the slot's number was when the module was bound; and how many slots have another one now.
  int registered(int slot) const { return at(slot).registered; }
  int reordered() const;

  // The whole planes as flat tensors, gaps between slots included.
  const torch::Tensor& parameter_plane() const { return parameter_plane_; }
  const torch::Tensor& gradient_plane() const { return gradient_plane_; }

  // The module's state outside the arena, each tensor once: batch-norm statistics and the like,
  // counters, and parameters that are not trained.
  const std::vector<NamedTensor>& float_buffers() const { return float_buffers_; }
  const std::vector<NamedTensor>& integer_buffers() const { return integer_buffers_; }
  const std::vector<NamedTensor>& frozen_parameters() const { return frozen_parameters_; }

  // User code may clear or replace `.grad` (zero_grad, p.grad = …). Copies what is there into the
  // arena, zero when cleared, and points `.grad` at the arena again. Cheap when nothing changed.
  // ConfigError when the shape is not the parameter's.
  void rebind_gradients();
  void rebind_gradient(int slot);

  // Throws ConfigError, naming it, where `module`, which was bound, has other parameters or buffers
  // by now, or parameters whose values are no longer in the arena. A buffer that is another tensor
  // of the same type and shape takes the former one's place.
  void check_module(const torch::nn::Module& module);

  // Whether `.grad` is the arena's, that is neither cleared nor replaced.
  bool gradient_is_in_place(int slot) const;

  // As rebind_gradients(), for values that were replaced rather than written in place (torch::load
  // does that). ConfigError when the parameter has another shape, type or device by now.
  void rebind_parameters();

 private:
  struct Bound {
    std::vector<std::string> names;
    int registered = 0;
    torch::Tensor parameter;                      // the module's own tensor
    torch::Tensor parameter_view, gradient_view;  // its place in the arena
  };

  // A parameter as the module has registered it, frozen or not: under each of its names.
  struct Registered {
    std::string name;
    torch::Tensor tensor;
  };

  const Bound& at(int slot) const { return bound_.at(static_cast<std::size_t>(slot)); }
  void collect(torch::nn::Module& module);
  void follow_buffers(const torch::nn::Module& module);
  void lay_out();
  void bind();

  Allocate allocate_;
  std::shared_ptr<Arena> arena_;  // shared with every tensor that views it
  torch::Tensor parameter_plane_, gradient_plane_;
  std::vector<Bound> bound_;
  std::vector<Registered> registered_;
  std::vector<NamedTensor> float_buffers_, integer_buffers_, frozen_parameters_;
};

}  // namespace skein

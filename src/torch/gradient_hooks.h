// Tells when a parameter's gradient is complete.
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "torch/binding.h"

namespace skein {

// While it lives, every backward pass calls `on_gradient(slot)` once for each parameter that
// received a gradient, right after that gradient was added to the arena and while the rest of
// backward goes on. Parameters that backward did not reach are not reported; a parameter used many
// times in forward is reported once, after the last contribution. (With activation checkpointing,
// which runs a backward inside a backward, once for each of them.)
//
// Called on the thread that runs autograd for the CPU: usually, not always, the one that called
// backward(). What it throws comes out of backward().
//
// The binding must outlive the hooks. No backward may be running when they are destroyed.
class GradientHooks {
 public:
  GradientHooks(Binding& binding, std::function<void(int slot)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  // A std::shared_ptr in LibTorch 1 and early 2, an intrusive pointer in 2.13.
  using Accumulator =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::Tensor&>()));
  struct Installed {
    Accumulator accumulator;
    std::uintptr_t key;
  };

  std::function<void(int slot)> on_gradient_;
  std::vector<Installed> installed_;
};

// Whether some GradientHooks watch this parameter.
bool has_gradient_hook(const torch::Tensor& parameter);

}  // namespace skein

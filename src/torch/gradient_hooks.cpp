#include "torch/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace skein {
namespace {

using torch::autograd::variable_list;

class PostHook final : public torch::autograd::FunctionPostHook {
 public:
  PostHook(Binding& binding, int slot, const std::function<void(int)>& on_gradient)
      : binding_(binding), slot_(slot), on_gradient_(on_gradient) {}

  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    // An undefined gradient means that the parameter is in the graph but had no part in the loss.
    if (!inputs.empty() && inputs.front().defined()) {
      // Autograd stores its own tensor when `.grad` was cleared, or with create_graph.
      binding_.rebind_gradient(slot_);
      on_gradient_(slot_);
    }
    return outputs;
  }

 private:
  Binding& binding_;
  int slot_;
  const std::function<void(int)>& on_gradient_;
};

}  // namespace

GradientHooks::GradientHooks(Binding& binding, std::function<void(int slot)> on_gradient)
    : on_gradient_(std::move(on_gradient)) {
  for (int slot = 0; slot < binding.slots(); ++slot) {
    // The parameter refers to its accumulator weakly: kept here, or the hook would go with it.
    // A frozen parameter has none, and may be trained again.
    const torch::Tensor& parameter = binding.parameter(slot);
    const bool frozen = !parameter.requires_grad();
    if (frozen) parameter.set_requires_grad(true);
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    if (frozen) parameter.set_requires_grad(false);
    const auto key =
        accumulator->add_post_hook(std::make_unique<PostHook>(binding, slot, on_gradient_));
    installed_.push_back({std::move(accumulator), key});
  }
}

bool has_gradient_hook(const torch::Tensor& parameter) {
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter);
  if (!accumulator) return false;
  for (const auto& hook : accumulator->post_hooks())
    if (dynamic_cast<const PostHook*>(hook.get())) return true;
  return false;
}

GradientHooks::~GradientHooks() {
  for (const Installed& hook : installed_) hook.accumulator->del_post_hook(hook.key);
}

}  // namespace skein

// Torch's optimizers, and one's own, in the place of Skein's.
//
//   auto run = skein::distribute(world, *model,
//       skein::torch_optimizer<torch::optim::Adam>(torch::optim::AdamOptions(1e-3).amsgrad(true))
//           .clip(1.0).schedule("cosine",
//           total_samples).group(skein::group("*.bias").weight_decay(0)));
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skein/recipe.h"

namespace skein {

// Makes a torch optimizer that has the parameters it is given, in one group.
using MakeTorchOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

// Internal: what torch_optimizer() puts into a recipe.
struct TorchFactory {
  MakeTorchOptimizer make;  // what it was given
};

// An elementwise torch optimizer as a run's optimizer: SGD, Adam, AdamW, RMSprop, Adagrad, or a
// class of the user's own (see Elementwise). It is given flat parts of the model, and its state is
// kept flat too: so `make` is called with stand-ins, perhaps several times.
// `learning_rate` takes the place of its own. clip(), schedule(), group() and no_decay_1d() of the
// result work as for Skein's own; all else is set in torch's options. ConfigError when the run is
// made for what is not elementwise: LBFGS, which looks at all parameters together, and
// optimizers that look at a tensor's norm, as Lamb and Lars do.
inline OptimizerSpec torch_optimizer(MakeTorchOptimizer make, double learning_rate) {
  OptimizerSpec spec(OptimizerSpec::Kind::torch, learning_rate);
  spec.torch = std::make_shared<const TorchFactory>(TorchFactory{std::move(make)});
  return spec;
}

// The same of a class and its options, with the rate that these have.
template <typename TorchOptimizer, typename Options>
OptimizerSpec torch_optimizer(const Options& options) {
  return torch_optimizer(
      [options](std::vector<torch::Tensor> parameters) {
        return std::make_unique<TorchOptimizer>(std::move(parameters), options);
      },
      options.get_lr());
}

// What a torch optimizer of the user's own that has state derives from besides:
//   class Lion : public torch::optim::Optimizer, public skein::Elementwise { … };
// One without state need not. Whether it is elementwise is tried out when the run is made, on a few
// numbers as a whole and in pieces.
class Elementwise {
 public:
  // Not called through this class.
  virtual ~Elementwise() = default;

  // The state of `parameter`, by name, once step() has made it. Each tensor has the parameter's
  // shape, starts with the same number everywhere and is changed in place; it will be pointed at
  // other memory between steps.
  virtual std::map<std::string, torch::Tensor*> state_of(const torch::Tensor& parameter) = 0;

  // So many steps count as made before the next step().
  virtual void set_steps(std::int64_t /*steps*/) {}
};

// For groups and freeze(): these tensors.
WhichParameters of(const std::vector<torch::Tensor>& tensors);

// The parameters of a module, which is part of the one that is trained.
inline WhichParameters of(const torch::nn::Module& module) { return of(module.parameters()); }

}  // namespace skein

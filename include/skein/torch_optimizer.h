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

// A torch optimizer as a run's optimizer: SGD, Adam, AdamW, RMSprop, Adagrad, or a class of the
// user's own (see Elementwise and PerTensor). It is given parts of the model, and its state is kept
// flat: so `make` is called with stand-ins, perhaps several times.
// `learning_rate` takes the place of its own. clip(), schedule(), group() and no_decay_1d() of the
// result work as for Skein's own; all else is set in torch's options. ConfigError when the run is
// made for LBFGS, which looks at all parameters together, and for one that looks at a tensor's
// norm, as Lamb and Lars do, and is not PerTensor.
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

// Where a torch optimizer of the user's own has its state. One derives from Elementwise or
// PerTensor.
class HasState {
 public:
  // Not called through this class.
  virtual ~HasState() = default;

  // The state of `parameter`, by name, once step() has made it. Each tensor has the parameter's
  // shape, starts with the same number everywhere and is changed in place; it will be pointed at
  // other memory between steps.
  virtual std::map<std::string, torch::Tensor*> state_of(const torch::Tensor& parameter) = 0;

  // The parameter has had `steps` steps before the next step(): those in which it was frozen, or
  // which were skipped, do not count, as in torch.
  virtual void set_steps(std::int64_t /*steps*/) {}
};

// What an optimizer of the user's own that has state derives from besides, if the update of an
// element depends on its own gradient, value and state alone:
//   class Lion : public torch::optim::Optimizer, public skein::Elementwise { … };
// One without state need not. It is given flat vectors that are cut anywhere. Whether it is
// elementwise is tried out when the run is made, on a few numbers as a whole and in pieces.
class Elementwise : public HasState {};

// What one derives from besides that looks at a tensor as a whole, at its norm, as Lamb and Lars
// do, or at its rows and columns, as Muon does:
//   class Lamb : public torch::optim::Optimizer, public skein::PerTensor { … };
// It is given the model's tensors, one at a time and in their own shapes; before that a stand-in
// with one element. State has the same names for all. Every strategy takes it but `dear`, whose
// workers update parts that are cut within tensors: ConfigError when such a run is made.
class PerTensor : public HasState {
 public:
  // None, unless a class says otherwise.
  std::map<std::string, torch::Tensor*> state_of(const torch::Tensor& /*parameter*/) override {
    return {};
  }
};

// For groups and freeze(): these tensors.
WhichParameters of(const std::vector<torch::Tensor>& tensors);

// The parameters of a module, which is part of the one that is trained.
inline WhichParameters of(const torch::nn::Module& module) { return of(module.parameters()); }

}  // namespace skein

// Distributed training of any torch::nn::Module, in the user's own loop.
//
//   auto world = skein::World::join();
//   auto dp    = skein::distribute(world, *model, skein::sgd(0.1).momentum(0.9),
//   skein::allreduce()); for (auto& batch : loader) {
//     auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
//     loss.backward();
//     dp.step(batch.data.size(0));        // instead of optimizer.step() and zero_grad()
//   }
//   dp.save("model.safetensors");
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "skein/recipe.h"
#include "skein/world.h"

namespace skein {

// A module that is trained by all workers of a world together. Its parameters and gradients live in
// Skein's memory while this object lives; the module is used as before. Move-only; not thread-safe.
class Distributed {
 public:
  Distributed(Distributed&&) noexcept;
  Distributed& operator=(Distributed&&) noexcept;

  // flush(), unless an exception is on its way; then the module keeps its values and is an ordinary
  // module again.
  ~Distributed();

  // Ends a step: averages the gradients (means over this worker's `samples` samples, so that every
  // sample counts the same), updates the parameters and clears the gradients. A worker that has no
  // samples left while others do calls step(0). Throws IoError when a peer is lost.
  void step(std::int64_t samples);

  // Says, before backward(), how many samples the coming step will have on this worker. Needed only
  // when the workers' shares change from one step to the next (without it the last step's number is
  // assumed; ConfigError at the next step if the shares then came out in other proportions).
  void expect(std::int64_t samples);

  // From now on a step has this many backward passes (gradient accumulation): nothing is sent
  // before the last. Their gradients are added up; `samples` in step() counts them all.
  void accumulate(int backward_passes);

  // Leaves the model that should be evaluated: every update applied on every worker. All workers
  // call it.
  void flush();

  // flush(), then writes the model's parameters and buffers (floating-point ones averaged over the
  // workers) to a safetensors file. All workers call it; rank 0 writes.
  void save(const std::string& path);

  // Reads a file that save() wrote, on every worker. ConfigError if it does not fit the module.
  void load(const std::string& path);

  std::int64_t samples() const;  // trained on so far, by all workers
  std::int64_t steps() const;    // updates made so far
  double learning_rate() const;  // of the next update

  class Impl;
  Impl& impl() { return *impl_; }

 private:
  friend Distributed distribute(World&, torch::nn::Module&, const OptimizerSpec&,
                                const StrategySpec&);
  friend Distributed distribute(
      World&, torch::nn::Module&,
      const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>&,
      double, const StrategySpec&);
  explicit Distributed(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Binds `module` to the world: parameters, buffers and frozen parameters become those of rank 0 on
// every worker. All workers call it with the same arguments. `world` and `module` must outlive the
// result. Throws ConfigError for what cannot be trained (parameters that are not float32 on the
// CPU, none at all) and for bad options.
Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy = allreduce());

// The same with an elementwise torch optimizer (SGD, Adam, AdamW, RMSprop, Adagrad): `make` is
// called with the flat parameters; `learning_rate` takes the place of its own.
Distributed distribute(
    World& world, torch::nn::Module& module,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>& make,
    double learning_rate, const StrategySpec& strategy = allreduce());

}  // namespace skein

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
#include <vector>

#include "skein/averaged_gradients.h"
#include "skein/recipe.h"
#include "skein/world.h"

namespace skein {

struct Fact;

// A module that is trained by all workers of a world together. Its parameters and gradients live in
// Skein's memory while this object lives; the module is used as before. Move-only; not thread-safe.
class Distributed {
 public:
  Distributed(Distributed&&) noexcept;
  Distributed& operator=(Distributed&&) noexcept;

  // flush(), unless that was the last call or an exception is on its way; then the module keeps its
  // values and is an ordinary module again.
  ~Distributed();

  // Ends a step: averages the gradients (means over this worker's `samples` samples, so that every
  // sample counts the same), updates the parameters and clears the gradients. A worker that has no
  // samples left while others do calls step(0), or flush(). Throws IoError when a peer is lost.
  void step(std::int64_t samples);

  // Says, before backward(), how many samples the coming step will have on this worker. Needed only
  // when the workers' shares change from one step to the next (without it the last step's number is
  // assumed; ConfigError at the next step or flush() if the shares then came out in other
  // proportions).
  void expect(std::int64_t samples);

  // From now on a step has this many backward passes (gradient accumulation): nothing is sent
  // before the last. Their gradients are added up; `samples` in step() counts them all.
  void accumulate(int backward_passes);

  // Calls `change` in every step, on the thread that calls step(), with the gradient that the
  // update is about to be made of:
  //   run.before_update([](skein::AveragedGradients& g) {
  //     if (std::isfinite(g.norm())) g.clip(1.0); else g.skip();
  //   });
  // All workers set it at the same place, and it must decide the same on all workers that share the
  // gradient: from what it is shown, or from what all know. It may use the world, as all workers
  // call it together under strategies in lockstep; not this object. What it throws comes out of
  // step() (or flush()); then no further step can be made. What it refers to must outlive this
  // object, whose destructor may make the last update. An empty function ends it.
  // OptimizerSpec::clip() limits what it leaves.
  void before_update(std::function<void(AveragedGradients&)> change);

  // Whether all workers together have trained on that many samples: the end of a loop for any
  // strategy,
  //   while (!run.done(total)) { … run.step(samples); }
  // In lockstep true after the same step on all workers. Where workers have a pace of their own,
  // true on each as soon as it knows; strategies that look at the run's end take `total_samples`
  // for it.
  bool done(std::int64_t total_samples);

  // Leaves the model that should be evaluated: every update applied on every worker, equal models,
  // the same samples(). All workers call it, after step(), perhaps after different numbers of
  // steps: it says that this worker makes no more until all have come here, and takes part in what
  // the others still do. Then training may go on. What is written to the parameters between this
  // and the next step, on all workers, counts.
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
  using MakeImpl = std::function<std::unique_ptr<Impl>(std::vector<Fact>& facts, int channels)>;
  static Distributed make(World& world, const MakeImpl& make_impl);
  std::unique_ptr<Impl> impl_;
};

// Binds `module` to the world: parameters, buffers and frozen parameters become those of rank 0 on
// every worker. All workers call it with the same arguments: model, optimizer and strategy are
// compared first, and ConfigError says, on all workers, what differs and where. `module` must
// outlive the result. Throws ConfigError for what cannot be trained (parameters that are not
// float32, all on the CPU or all on one GPU, that another Distributed trains, none at all) and for
// bad options; if only some workers fail so, it throws on the others too.
Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy = allreduce());

// The same with an elementwise torch optimizer (SGD, Adam, AdamW, RMSprop, Adagrad): `make` is
// called with the flat parameters; `learning_rate` takes the place of its own.
Distributed distribute(
    World& world, torch::nn::Module& module,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>& make,
    double learning_rate, const StrategySpec& strategy = allreduce());

}  // namespace skein

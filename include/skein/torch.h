// Distributed training of any torch::nn::Module, in the user's own loop.
//
//   auto world = skein::World::join();
//   auto dp    = skein::distribute(world, *model, skein::sgd(0.1).momentum(0.9));
//   for (auto& batch : loader) {
//     auto loss = F::cross_entropy(model->forward(batch.data), batch.target);
//     loss.backward();
//     dp.step(batch.data.size(0));        // instead of optimizer.step() and zero_grad()
//   }
//   dp.save("model.safetensors");
//
// The last line of each function's comment says who calls it, when, and at what pace:
//   Called by: all workers, between steps, at any pace.
// WHO is "all workers" (each makes the call, equally often and in the same order as its other
// calls of this kind; where one does not come the others get an error that names the call), "each
// worker for itself" (nobody waits for it) or "any worker" (one is enough).
// WHEN is "between steps" (after step() and before the next backward()), "within a step" (between
// the two), "before the first step" or "at any time".
// PACE is "at any pace" (perhaps after different numbers of steps, as workers make them that do not
// run in lockstep), "after the same step" (all have made the same number of steps, or are in a
// function of every(), or have come out of flush()) or "at its own pace" (whenever it likes).
//
// docs/what-may-i-call-when.md has all of them in one table, with what happens otherwise.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "skein/averaged_gradients.h"
#include "skein/checkpoint.h"
#include "skein/gradient_piece.h"
#include "skein/recipe.h"
#include "skein/record.h"
#include "skein/stop.h"
#include "skein/torch_optimizer.h"
#include "skein/torch_share.h"
#include "skein/totals.h"
#include "skein/weights.h"
#include "skein/world.h"

namespace skein {

// A module that is trained by all workers of a world together. Its parameters and gradients live in
// Skein's memory while this object lives; the module is used as before. Move-only; not thread-safe.
class Distributed {
 public:
  // The other one is left without a module: it may only be destroyed or assigned to.
  Distributed(Distributed&&) noexcept;

  // The same; what this one had ends as in the destructor.
  Distributed& operator=(Distributed&&) noexcept;

  // flush(), unless that was the last call, an exception is on its way, or World::fail() was
  // called; then the module keeps its values and is an ordinary module again. In a child that
  // fork() made of a worker nothing happens, here as in every hook on the module: the child may
  // prepare data, and must not train.
  ~Distributed();

  // Ends a step: averages the gradients (means over this worker's `samples` samples, so that every
  // sample counts the same), updates the parameters and clears the gradients. A worker that has no
  // samples left while others do calls step(0), or flush(); step(0) clears what gradients there are
  // and counts nothing of them. A step in which no worker has samples is no update. Throws IoError
  // when a peer is lost, ConfigError for samples without a gradient: where no backward() of this
  // module has been called since the last step, and none of its gradients was set by hand.
  // Called by: all workers, within a step, at any pace.
  void step(std::int64_t samples);

  // The same for the batch that a loop over share() has handed out. ConfigError outside of one.
  void step();

  // Says, before backward(), how many samples the coming step will have on this worker. Needed only
  // when the workers' shares change from one step to the next (without it the number of the last
  // step that had samples is assumed; ConfigError at the next step or flush() if the shares then
  // came out in other proportions), and not where gradients stay until step() (`overlap=false`).
  // Called by: each worker for itself, between steps, at its own pace.
  void expect(std::int64_t samples);

  // From now on a step has this many backward passes (gradient accumulation): nothing is sent
  // before the last. Their gradients are added up; `samples` in step() counts them all.
  // Called by: each worker for itself, between steps, at its own pace.
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
  // Called by: all workers, between steps, after the same step.
  void before_update(std::function<void(AveragedGradients&)> change);

  // Whether all workers together have trained on that many samples: the end of a loop for any
  // strategy,
  //   while (!run.done(total)) { … run.step(samples); }
  // In lockstep true after the same step on all workers. Where workers have a pace of their own,
  // true on each as soon as it knows; strategies that look at the run's end take `total_samples`
  // for it.
  // Called by: each worker for itself, at any time, at its own pace.
  bool done(std::int64_t total_samples);

  // A dataset that all workers share, in batches:
  //   for (auto& batch : run.share(images, labels, {.batch = 32, .epochs = 10})) {
  //     F::cross_entropy(model->forward(batch.data), batch.target).backward();
  //     run.step();
  //   }
  // All workers call it with the same options and datasets of the same size, compared first. Each
  // gets its own part. Under strategies in lockstep (`allreduce`, `dear`) every sample comes
  // exactly once an epoch, in the same global batches of options.batch × workers whatever the
  // shares; the last of an epoch is short, and a worker for whom nothing is left of it makes its
  // step without showing. Under `abs`, `local` and `lasgd` each worker takes the next batch as soon
  // as it can, and every sample comes once an epoch, too. Under `gossip` and `acid` each draws from
  // an order of its own, until all together have trained on epochs × samples. expect() is called by
  // the loop. The body calls step() once for each batch; a batch that it leaves out by `continue`
  // is not trained on.
  //
  // At its end (or a `break`, or a stopping() run) the loop calls flush(), so all workers come to
  // it, after different numbers of batches if need be. An exception leaves it without. Batches are
  // loaded by a thread ahead of their use, one at a time; what the dataset throws comes out of the
  // loop. Loops of one run come one after the other. ConfigError, on all workers, at the end of a
  // loop in which nobody made a step, and for one that begins inside another, or in evaluate()
  // without options.evaluate.
  //
  // With options.evaluate the loop does not train, for the body of evaluate(): each worker gets its
  // own even part of the dataset, and every sample comes once. No step is made, and nothing is
  // counted.
  //
  // Epochs are numbered through all loops of a run, and each has an order of its own. A run that
  // was resumed goes on in the middle of an epoch, after samples() samples: the first loops pass
  // over what has been trained. Where they do not begin with the run's first epoch,
  // options.first_epoch says with which. Under strategies without lockstep the few batches that
  // were under way then come again or not at all.
  //
  // The first dimension of both tensors counts samples.
  // Called by: all workers, between steps, at any pace.
  SharedRange<torch::data::Example<>> share(torch::Tensor data, torch::Tensor target,
                                            const ShareOptions& options = {});

  // The same for any number of such tensors: batch.value[0], …
  SharedRange<std::vector<torch::Tensor>> share(std::vector<torch::Tensor> tensors,
                                                const ShareOptions& options = {});

  // The same for the numbers of samples alone: batch.indices.
  SharedRange<void> share(std::int64_t dataset_size, const ShareOptions& options = {});

  // The same for what `load` makes of the numbers: batch.value, or batch.data and batch.target.
  template <detail::MakesBatches Load>
  auto share(std::int64_t dataset_size, Load load, const ShareOptions& options = {}) {
    using Value = std::decay_t<std::invoke_result_t<Load&, const std::vector<std::size_t>&>>;
    return SharedRange<Value>(std::make_unique<ShareLoop>(
        *this, dataset_size, options, [load = std::move(load)](const auto& indices) mutable {
          return std::static_pointer_cast<void>(std::make_shared<Value>(load(indices)));
        }));
  }

  // The same for a torch::data dataset, mapped or not: anything with size() and get_batch(indices)
  // or get(index). It must outlive the loop. Examples of tensors are stacked.
  template <detail::IsDataset Dataset>
  auto share(Dataset& dataset, const ShareOptions& options = {}) {
    return share(
        detail::known_size(dataset.size()),
        [&dataset](const auto& indices) { return detail::batch_of(dataset, indices); }, options);
  }

  // The same for one that the loop keeps.
  template <detail::IsOwnDataset Dataset>
  auto share(Dataset&& dataset, const ShareOptions& options = {}) {
    const auto kept = std::make_shared<Dataset>(std::move(dataset));
    return share(
        detail::known_size(kept->size()),
        [kept](const auto& indices) { return detail::batch_of(*kept, indices); }, options);
  }

  // Does not compile, and says why.
  template <detail::IsLoader Loader>
  void share(Loader&&, const ShareOptions& = {}) {
    static_assert(!sizeof(Loader),
                  "share() takes the dataset and not a DataLoader: it divides the data among the "
                  "workers, shuffles it and loads it ahead by itself");
  }

  // Whether the run should end: somebody has called stop(), or a signal that asks for it has come
  // to a worker. Installs stop_on_signals(), unless that has been done. The same on all workers in
  // lockstep, after the same step; true on each as soon as it knows under other strategies. Loops
  // over share() end by themselves then; other loops are written
  //   while (!run.done(total) && !run.stopping()) { … }
  // Called by: each worker for itself, at any time, at its own pace.
  bool stopping();

  // Asks all workers to end. One is enough; it counts from the next step on.
  // Called by: any worker, at any time, at its own pace.
  void stop();

  // Calls `look` with a record of how the run is going, after every `every`-th update of this
  // worker's model, on the thread that calls step(); each worker for itself, and without messages.
  //   run.on_record(10, [&](const skein::Record& record) { metrics.write(record); });
  // On a GPU a record comes when its loss is there, up to two steps late; flush() brings the last,
  // and the destructor none.
  // What `look` throws comes out of step() or flush(). It may use the world where all workers set
  // it and are in lockstep; not this object. An empty function ends it. ConfigError for `every`
  // below 1.
  // Called by: each worker for itself, between steps, at its own pace.
  void on_record(std::int64_t every, std::function<void(const Record&)> look);

  // What records say of the loss: the mean of the values since the last record. A loss on a GPU is
  // not waited for. Does nothing without on_record().
  // Called by: each worker for itself, within a step, at its own pace.
  void report_loss(const torch::Tensor& loss);

  // The same for a plain number.
  void report_loss(double loss);

  // The same for a figure of your own.
  // Called by: each worker for itself, within a step, at its own pace.
  void report(const std::string& name, double value);

  // Leaves the model that should be evaluated: every update applied on every worker, equal models,
  // the same samples(). All workers call it, after step(), perhaps after different numbers of
  // steps: it says that this worker makes no more until all have come here, and takes part in what
  // the others still do. Then training may go on. What is written to the parameters between this
  // and the next step, on all workers, counts. Between other steps it may be lost; under `abs` it
  // is a ConfigError of a later step, or of flush(). ConfigError, on all workers and naming the
  // parameter, where the module of one of them has other parameters than distribute() found, or
  // keeps their values elsewhere: a layer that was replaced, say.
  // Called by: all workers, between steps, at any pace.
  void flush();

  // flush(), then compares a digest of all parameters over the workers. Throws Error, on all of
  // them, that names the first parameter which is not equal everywhere, and who has which value.
  // Takes one pass over the model and one small exchange; save() and save_checkpoint() do it, and a
  // debug build of the library in each flush().
  // Called by: all workers, between steps, at any pace.
  void verify();

  // From now on calls `body` on all workers together each time that the samples of all workers have
  // passed another multiple of `samples`, under every strategy: with every update applied, equal
  // models and the same samples(), as after flush(), on the thread that is in step() or flush().
  //   run.every(10000, [&] { run.evaluate(…); if (world.rank() == 0) print(…); });
  // Where each worker has its own pace, one that comes to a mark waits for the others, and those
  // that are in flush() already come along. A mark that several steps at once have passed is seen
  // to once. Marks of several functions come in the order of their samples, then of the calls of
  // every(). In a resumed run they go on from there. `body` may use this object but for step(), and
  // the world; what it refers to must outlive this object, whose destructor may come to a last
  // mark. What it throws comes out of step() or flush(). ConfigError for `samples` below 1, and
  // where the workers pass different numbers.
  // Called by: all workers, between steps, after the same step.
  void every(std::int64_t samples, std::function<void()> body);

  // Calls `body` while the module is the one to judge: the mean of the workers' models, with
  // averaged buffers, in eval() mode and without gradients. Then the module is as it was. All
  // workers call it, after step(), perhaps after different numbers of steps, and may use the world
  // in `body`:
  //   run.evaluate([&] {
  //     for (auto& batch : run.share(images, labels, {.batch = 250, .evaluate = true}))
  //       correct += …, count += batch.size;
  //   });
  //   const auto all = world.sum_integers({correct, count});
  // ConfigError for calls in `body` that would train, save or flush.
  // Training goes on as if nothing had been asked, but for `local` and `lasgd`, whose workers come
  // together for it as in flush() and go on from the mean that it shows. What `body` throws comes
  // out when the module is as it was.
  // Called by: all workers, between steps, at any pace.
  void evaluate(const std::function<void()>& body, Weights weights = Weights::trained);

  // Keeps an exponential moving average of the parameters from now on, for Weights::ema: after the
  // first update it is the model, and every later one makes it decay * average + (1 - decay) *
  // model. Updates that this worker makes while it waits in flush() count, too: where workers have
  // equal models they have equal averages. Checkpoints hold it; call it before resume(). It costs
  // as much memory as the model, and a pass over it at each update. ConfigError unless 0 <= decay
  // < 1, and after resume(), which would have brought the average back.
  // Called by: all workers, before the first step, after the same step.
  void keep_ema(double decay);

  // flush(), then writes the model's parameters and buffers (floating-point ones averaged over the
  // workers) to a file, which appears when it is whole. PATH.pt and PATH.pth are for Python: a dict
  // of tensors for load_state_dict(torch.load(path)). Any other name is a safetensors file, which
  // load() reads. All workers call it, between steps; rank 0 writes, and where it cannot all throw.
  // Called by: all workers, between steps, at any pace.
  void save(const std::string& path, Weights weights = Weights::trained);

  // Reads a safetensors file that save() wrote. All workers call it. Where one of them cannot read
  // it, or it does not fit the module (ConfigError), all throw, with the module as it was.
  // Called by: all workers, between steps, at any pace.
  void load(const std::string& path);

  // flush(), then saves all that the run needs to go on exactly here, as DIR/SAMPLES, whole or not
  // at all: model, buffers, optimizer, samples and steps, the strategy's state, torch's random
  // generators, and `values` (rank 0's) for the program's own use:
  //   run.save_checkpoint("checkpoints", {{"epoch", std::to_string(epoch + 1)}});
  // A thread writes it while training goes on. The next call waits for the last one and throws
  // Error, on all workers, if that could not be written; what was saved before it is still there.
  // So does the destructor, but for the error, which it prints. All workers call it, between steps,
  // with a folder that all of them see. ConfigError for a folder that holds checkpoints which this
  // run did not begin with, or in which another run saves now.
  // Called by: all workers, between steps, at any pace.
  void save_checkpoint(const std::string& dir, const Values& values = {},
                       const CheckpointOptions& options = {});

  // save_checkpoint() at each mark in samples (every()): the way to save that is right under every
  // strategy. `values` is asked for the program's own values at each.
  //   run.save_every(50000, "checkpoints");
  // Called by: all workers, between steps, after the same step.
  void save_every(std::int64_t samples, const std::string& dir,
                  std::function<Values()> values = nullptr, const CheckpointOptions& options = {});

  // Waits until the last checkpoint is on the disk; throws Error, on all workers, if it is not.
  // Called by: all workers, between steps, after the same step.
  void wait_for_checkpoint();

  // Goes on from the newest whole checkpoint in `dir` (or from `dir`, if that is one), and returns
  // a false Resumed where there is none. All workers call it, after distribute() and before the
  // first step, and get the same; they may be another number than those who saved, with another
  // strategy. A checkpoint that is damaged is passed over, with a line on stderr. ConfigError, on
  // all workers and with the run as it was, where there are checkpoints and none is whole, where
  // the model or the optimizer is another (it names the tensor), where `identity` is not what
  // CheckpointOptions::identity was (it names the entry), and after a step.
  // Called by: all workers, before the first step, after the same step.
  Resumed resume(const std::string& dir, const Values& identity = {});

  // Samples trained on so far, by all workers.
  // Called by: each worker for itself, at any time, at its own pace.
  std::int64_t samples() const;

  // Updates made so far.
  // Called by: each worker for itself, at any time, at its own pace.
  std::int64_t steps() const;

  // How this worker has spent its time, what it has sent, and how large the model is.
  // Called by: each worker for itself, at any time, at its own pace.
  Totals totals() const;

  // What the strategy promises, for programs that let their users choose one.
  // Called by: each worker for itself, at any time, at its own pace.
  RunTraits traits() const;

  // What the strategy has counted, for the report at the end.
  // Called by: each worker for itself, at any time, at its own pace.
  StrategyReport strategy_report();

  // How many of the next global batch's `samples` each worker should compute, by rank, for programs
  // that divide it themselves. ConfigError where the strategy is not in lockstep.
  // Called by: each worker for itself, between steps, at its own pace.
  std::vector<std::int64_t> shares(std::int64_t samples);

  // Of the next update, of parameters that no group changes.
  // Called by: each worker for itself, at any time, at its own pace.
  double learning_rate() const;

  // From the next step on the optimizer's learning rate is this one: that of the groups changes by
  // the same factor, and a schedule goes on from where it is, with this in place of the rate that
  // it was given. ConfigError where it cannot be. All workers set the same after the same step:
  // those that share updates compare rates, and a step that finds them different is a ConfigError.
  // Where workers have a pace of their own each sets its own.
  // Called by: all workers, between steps, after the same step.
  void set_learning_rate(double rate);

  // From the next step on those parameters stay as they are, with what the optimizer remembers of
  // them, and need no gradients (requires_grad). Updates that they miss do not count as theirs, for
  // AdamW's bias correction, as in torch. All workers do the same after the same step, which
  // is compared as rates are. ConfigError between backward() and step(), and when no parameter is
  // meant.
  //   run.freeze(skein::named("backbone.*"));
  // Called by: all workers, between steps, after the same step.
  void freeze(const WhichParameters& which);

  // The other way round. Parameters that were frozen before distribute() are not trained at all and
  // stay so.
  // Called by: all workers, between steps, after the same step.
  void unfreeze(const WhichParameters& which);

  // For torch's learning-rate schedulers:
  //   torch::optim::StepLR scheduler(run.optimizer(), 30, 0.1);
  // Its param_groups are the parameters that no group of the recipe changes (they come first, and
  // may be none), then those of the groups, cut where settings differ. The rates that are written
  // there hold from the next step on, with the recipe's schedule on top. It has no step() and no
  // state. It lives as long as this object. All workers write the same, as in set_learning_rate().
  // Called by: each worker for itself, at any time, at its own pace.
  torch::optim::Optimizer& optimizer();

  // The world that it was given, also where the program keeps none.
  // Called by: each worker for itself, at any time, at its own pace.
  World& world();

  class Impl;

  // Internal: the inside, for Skein's other layers.
  Impl& impl() { return *impl_; }

 private:
  friend Distributed distribute(World&, torch::nn::Module&, const OptimizerSpec&,
                                const StrategySpec&);
  friend Distributed distribute(World&, torch::nn::Module&, const MakeTorchOptimizer&, double,
                                const StrategySpec&);
  explicit Distributed(std::unique_ptr<Impl> impl);
  static Distributed make(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                          const StrategySpec& strategy);
  struct End {
    void operator()(Impl* impl) const noexcept;
  };
  std::unique_ptr<Impl, End> impl_;
};

// Binds `module` to the world: parameters, buffers and frozen parameters become those of rank 0 on
// every worker. All workers call it with the same arguments: model, optimizer and strategy are
// compared first, and ConfigError says, on all workers, what differs and where. `module` must
// outlive the result. Throws ConfigError for what cannot be trained (parameters that are not
// float32, all on the CPU or all on one GPU, that another Distributed trains, none at all) and for
// bad options; if only some workers fail so, it throws on the others too.
// Called by: all workers, before the first step, after the same step.
Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy = allreduce());

// The same for a program with one module, which needs no world of its own: the result keeps it.
//   auto run = skein::distribute(skein::World::join(), *model, skein::sgd(0.1));
inline Distributed distribute(World&& world, torch::nn::Module& module,
                              const OptimizerSpec& optimizer,
                              const StrategySpec& strategy = allreduce()) {
  return distribute(world, module, optimizer, strategy);
}

// The same with torch_optimizer(make, learning_rate).
Distributed distribute(World& world, torch::nn::Module& module, const MakeTorchOptimizer& make,
                       double learning_rate, const StrategySpec& strategy = allreduce());

}  // namespace skein

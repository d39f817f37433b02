// What a run is made of besides the model and the data: an optimizer and a strategy. No torch here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "skein/parameter_group.h"

namespace skein {

struct TorchFactory;  // skein/torch_optimizer.h

// How parameters are updated. Made by sgd(), adamw() or torch_optimizer(); each setter returns the
// object itself:
//   skein::sgd(0.1).momentum(0.9).weight_decay(5e-4).schedule("cosine", total_samples)
// Values are checked when the run is made.
class OptimizerSpec {
 public:
  // The update's rule.
  enum class Kind : std::uint8_t {
    sgd,    // stochastic gradient descent, with momentum if wanted
    adamw,  // Adam with decoupled weight decay
    torch,  // one of torch's, or the user's own
  };

  // As sgd(), adamw() and torch_optimizer() do.
  OptimizerSpec(Kind kind, double learning_rate) : kind(kind), learning_rate(learning_rate) {}

  // Of sgd: what stays of the last step, 0 or more and below 1. 0 unless set: none.
  OptimizerSpec& momentum(double value) { return momentum_ = value, *this; }

  // Of sgd: the gradient is added to the momentum once more before the step. Needs a momentum.
  OptimizerSpec& nesterov(bool on = true) { return nesterov_ = on, *this; }

  // Of adamw: what stays of the means of gradients and of their squares; 0.9 and 0.999 unless set.
  OptimizerSpec& betas(double first, double second) { return beta1 = first, beta2 = second, *this; }

  // Of adamw: what is added to the root that a step is divided by; 1e-8 unless set.
  OptimizerSpec& epsilon(double value) { return epsilon_ = value, *this; }

  // How strongly parameters are drawn to zero; 0 unless set. In sgd it is added to the gradient, in
  // adamw it is apart from it, as in torch's SGD and AdamW.
  OptimizerSpec& weight_decay(double value) { return weight_decay_ = value, *this; }

  // Other settings for some parameters; groups that come later count for more.
  OptimizerSpec& group(ParameterGroup which) { return groups_.push_back(std::move(which)), *this; }

  // No weight decay on tensors of one dimension: biases and the weights of norms. As a group that
  // comes before all others.
  OptimizerSpec& no_decay_1d(bool on = true) { return no_decay_1d_ = on, *this; }

  // Limits the norm of the whole averaged gradient. 0: no limit.
  OptimizerSpec& clip(double norm) { return clip_ = norm, *this; }

  // The learning rate over global samples: "constant", "cosine", "step:every=50000,factor=0.1",
  // each with "warmup=SAMPLES" if wanted, as in "cosine:warmup=5000". A cosine ends at
  // `total_samples`.
  OptimizerSpec& schedule(const std::string& text, std::int64_t total_samples = 0) {
    return schedule_ = text, total_samples_ = total_samples, *this;
  }

  Kind kind;             // what the constructor was given
  double learning_rate;  // likewise
  double momentum_ = 0;
  bool nesterov_ = false;
  double beta1 = 0.9;    // what betas() was given
  double beta2 = 0.999;  // likewise
  double epsilon_ = 1e-8;
  double weight_decay_ = 0;
  bool no_decay_1d_ = false;
  double clip_ = 0;
  std::string schedule_ = "constant";
  std::int64_t total_samples_ = 0;
  std::vector<ParameterGroup> groups_;
  std::shared_ptr<const TorchFactory> torch;  // of Kind::torch
};

// Stochastic gradient descent, as torch::optim::SGD.
inline OptimizerSpec sgd(double learning_rate) { return {OptimizerSpec::Kind::sgd, learning_rate}; }

// Adam with decoupled weight decay, as torch::optim::AdamW.
inline OptimizerSpec adamw(double learning_rate) {
  return {OptimizerSpec::Kind::adamw, learning_rate};
}

// How workers share their work, by name, with that strategy's options as text.
class StrategySpec {
 public:
  // A strategy by its name, such as one that `skein doctor` lists. Names and options are checked
  // when the run is made.
  explicit StrategySpec(std::string name) : name(std::move(name)) {}

  // Sets one of the strategy's options, as `--set strategy.KEY=VALUE` does for `skein train`.
  StrategySpec& set(const std::string& key, const std::string& value) {
    return options[key] = value, *this;
  }

  // Of what a strategy draws at random; the same on all workers.
  StrategySpec& seed(std::uint64_t value) { return seed_ = value, *this; }

  std::string name;                            // what the constructor was given
  std::map<std::string, std::string> options;  // what set() was given
  std::uint64_t seed_ = 0;
};

// Synchronous SGD. Options: fusion = auto | none | SIZE, balance = true | false, overlap = true |
// false (gradients leave in step() only, so that code before it may change them), wire = f32 |
// bf16, reorder = true | false.
inline StrategySpec allreduce() { return StrategySpec("allreduce"); }

// The same updates, with the all-reduce hidden behind backward and the next forward. Options: those
// of allreduce, fusion_start = SIZE, trial_steps = N.
inline StrategySpec dear() { return StrategySpec("dear"); }

// Delayed synchronous SGD in which every worker computes as many samples as it can: step() adds up
// gradients and decides when weights change. Options: lr_scaling = none | linear | sqrt,
// reference_batch = N, warmup_rounds = N, max_micro_batches = N, lookahead = auto | own | share |
// momentum | none, delay = auto | 1 | 0.
inline StrategySpec abs_sgd() { return StrategySpec("abs"); }

// Local SGD with models averaged in the background, without a pause. Options: period = N or
// period_ms = N, warmup = SAMPLES, average_momentum = true | false, outer_momentum = M (of the mean
// of the models, from one round of averaging to the next).
inline StrategySpec lasgd() { return StrategySpec("lasgd"); }

// Local SGD with a pause in which models are averaged. Options: period = N, outer_momentum = M.
inline StrategySpec local() { return StrategySpec("local"); }

// Averaging with one neighbour at a time, with a continuous momentum. Goes on when workers are
// lost. Options: those of gossip, strength = S.
inline StrategySpec acid() { return StrategySpec("acid"); }

// The same without the momentum. Options: topology = ring | complete | exponential | torus | star |
// random-regular:D | FILE, rate = R, schedule = poisson | fixed, max_lag = N, momentum = local |
// averaged.
inline StrategySpec gossip() { return StrategySpec("gossip"); }

}  // namespace skein

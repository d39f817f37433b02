// What a run is made of besides the model and the data: an optimizer and a strategy. No torch here.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace skein {

// How parameters are updated. Made by sgd() or adamw(); each setter returns the object itself:
//   skein::sgd(0.1).momentum(0.9).weight_decay(5e-4).schedule("cosine", total_samples)
// Values are checked when the run is made.
class OptimizerSpec {
 public:
  enum class Kind : std::uint8_t { sgd, adamw };
  OptimizerSpec(Kind kind, double learning_rate) : kind(kind), learning_rate(learning_rate) {}

  OptimizerSpec& momentum(double value) { return momentum_ = value, *this; }
  OptimizerSpec& nesterov(bool on = true) { return nesterov_ = on, *this; }
  OptimizerSpec& betas(double first, double second) { return beta1 = first, beta2 = second, *this; }
  OptimizerSpec& epsilon(double value) { return epsilon_ = value, *this; }
  OptimizerSpec& weight_decay(double value) { return weight_decay_ = value, *this; }

  // No weight decay on tensors of one dimension: biases and the weights of norms.
  OptimizerSpec& no_decay_1d(bool on = true) { return no_decay_1d_ = on, *this; }

  // Limits the norm of the whole averaged gradient. 0: no limit.
  OptimizerSpec& clip(double norm) { return clip_ = norm, *this; }

  // The learning rate over global samples: "constant", "cosine", "step:every=50000,factor=0.1",
  // each with "warmup=SAMPLES" if wanted, as in "cosine:warmup=5000". A cosine ends at
  // `total_samples`.
  OptimizerSpec& schedule(const std::string& text, std::int64_t total_samples = 0) {
    return schedule_ = text, total_samples_ = total_samples, *this;
  }

  Kind kind;
  double learning_rate;
  double momentum_ = 0;
  bool nesterov_ = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon_ = 1e-8;
  double weight_decay_ = 0;
  bool no_decay_1d_ = false;
  double clip_ = 0;
  std::string schedule_ = "constant";
  std::int64_t total_samples_ = 0;
};

inline OptimizerSpec sgd(double learning_rate) { return {OptimizerSpec::Kind::sgd, learning_rate}; }
inline OptimizerSpec adamw(double learning_rate) {
  return {OptimizerSpec::Kind::adamw, learning_rate};
}

// How workers share their work, by name, with that strategy's options as text.
class StrategySpec {
 public:
  explicit StrategySpec(std::string name) : name(std::move(name)) {}
  StrategySpec& set(const std::string& key, const std::string& value) {
    return options[key] = value, *this;
  }

  // Of what a strategy draws at random; the same on all workers.
  StrategySpec& seed(std::uint64_t value) { return seed_ = value, *this; }

  std::string name;
  std::map<std::string, std::string> options;
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
// reference_batch = N, warmup_rounds = N, max_micro_batches = N.
inline StrategySpec abs_sgd() { return StrategySpec("abs"); }

// Local SGD, with models averaged in the background (options: period = N or period_ms = N, warmup =
// SAMPLES, average_momentum = true | false) or with a pause (period = N).
inline StrategySpec lasgd() { return StrategySpec("lasgd"); }
inline StrategySpec local() { return StrategySpec("local"); }

// Averaging with one neighbour at a time, with a continuous momentum or without. Goes on when
// workers are lost. Options: topology = ring | complete | exponential | torus | star |
// random-regular:D | FILE, rate = R, schedule = poisson | fixed, max_lag = N, momentum = local |
// averaged, and strength = S of acid.
inline StrategySpec acid() { return StrategySpec("acid"); }
inline StrategySpec gossip() { return StrategySpec("gossip"); }

}  // namespace skein

// Loss scaling for training in half precision (float16), where small gradients would become zero.
//
//   skein::LossScaler scaler;
//   run.before_update([&](skein::AveragedGradients& g) {
//     if (scaler.unscale(g)) g.clip(1.0);          // false: some overflowed, and the step is
//     skipped
//   });
//   …
//   scaler.scale(loss).backward();
//   run.step(samples);
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "skein/averaged_gradients.h"

namespace skein {

// Multiplies the loss, and with it all gradients, by a factor that is as large as gradients allow.
// Each worker has one. In lockstep all see the same averaged gradients, so all have the same
// factor at every step; where workers update models of their own, each has its own. Not
// thread-safe.
class LossScaler {
 public:
  // Factors that are powers of two change no bit of a gradient that does not overflow or underflow.
  struct Options {
    double initial = 65536;      // factor of the first step
    double growth = 2;           // by which it is multiplied after growth_interval updates
    int growth_interval = 2000;  // with no overflow between them
    double backoff = 0.5;        // by which it is multiplied after an overflow
    double least = 1;            // smallest factor
    double most = 16777216;      // largest factor
  };

  // With the default options.
  LossScaler();

  // ConfigError for options that are not: 0 < least ≤ initial ≤ most, growth ≥ 1,
  // growth_interval ≥ 1, 0 < backoff < 1.
  explicit LossScaler(const Options& options);

  // The loss times the factor, for each backward pass of the coming step.
  torch::Tensor scale(const torch::Tensor& loss) const { return loss * factor_; }

  // In before_update(): divides by the factor that scale() used. False when an element is not
  // finite: then the step is skipped and the factor smaller from the next on. Where it is `least`
  // already and 20 steps in a row were skipped, the gradients themselves are not finite: Error.
  // ConfigError under `abs` with several workers, where gradients of several steps come together,
  // which had different factors: divide there between backward() and step().
  bool unscale(AveragedGradients& gradients);

  double factor() const { return factor_; }                // of the coming step
  std::int64_t skipped() const { return state_.skipped; }  // steps so far

  // What a checkpoint needs of it.
  struct State {
    double factor = 0;          // of the coming step
    std::int64_t good = 0;      // updates since it last changed
    std::int64_t skipped = 0;   // steps so far
    std::int64_t in_a_row = 0;  // of these, since the last update
  };

  // As it is now.
  State state() const;

  // Goes on from there. ConfigError for one that cannot be.
  void set_state(const State& state);

 private:
  Options options_;
  double factor_;
  State state_;
};

}  // namespace skein

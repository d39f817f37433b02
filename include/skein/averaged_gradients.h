// What Distributed::before_update shows of a step's gradient.
#pragma once

#include <cmath>

namespace skein {

// The gradient that the coming update is made of, of the whole model: averaged over all workers
// (their samples weigh alike), or this worker's own under strategies whose workers update models of
// their own (`local`, `lasgd`, `gossip`, `acid`). Nothing of it is applied yet.
class AveragedGradients {
 public:
  explicit AveragedGradients(double norm) : norm_(norm) {}

  // The Euclidean norm of all elements together, as scaled so far; not finite when an element is
  // not. The same bits on all workers wherever they share the gradient.
  double norm() const { return norm_ * std::abs(factor_); }

  // Multiplies every element.
  void scale(double factor) { factor_ *= factor; }

  // Limits the norm as OptimizerSpec::clip() does, bit for bit.
  void clip(double max_norm) {
    const double factor = max_norm / (norm() + 1e-6);
    if (!(factor > 1)) scale(factor);
  }

  // No update in this step: parameters and the optimizer's state stay as they are, steps() does not
  // count it, and the gradient is dropped. Its samples count.
  void skip() { skipped_ = true; }

  double factor() const { return factor_; }
  bool skipped() const { return skipped_; }

 private:
  double norm_;
  double factor_ = 1;
  bool skipped_ = false;
};

}  // namespace skein

// What Distributed::before_update shows of a step's gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace skein {

struct GradientPiece;  // skein/gradient_piece.h

// The gradient that the coming update is made of, of the whole model: averaged over all workers
// (their samples weigh alike), or this worker's own under strategies whose workers update models of
// their own (`local`, `lasgd`, `gossip`, `acid`). Nothing of it is applied yet.
class AveragedGradients {
 public:
  // The Euclidean norm of all elements together, as scaled so far; not finite when an element is
  // not. The same bits on all workers wherever they share the gradient. After each() it is added up
  // anew, for which all of them must ask.
  double norm() const {
    if (stale_) norm_ = source_->norm();
    stale_ = false;
    return norm_ * std::abs(factor_);
  }

  // Multiplies every element.
  void scale(double factor) {
    factor_ *= factor;
    scaled_ *= factor;
    limit_ *= std::abs(factor);
  }

  // Limits the norm as OptimizerSpec::clip() does, bit for bit.
  void clip(double max_norm) {
    const double factor = max_norm / (norm() + 1e-6);
    if (!(factor > 1)) factor_ *= factor;
    limit_ = std::min(limit_, max_norm);
  }

  // Calls `change` for every piece of the gradient that this worker makes the update of, each
  // within one parameter, to look at or to change in place, element by element:
  //   g.each([](const skein::GradientPiece& piece) { piece.values.clamp_(-1, 1); });
  // Together they are the whole gradient; under `dear` each worker has the pieces of its shards,
  // else each has all. What becomes of an element must not depend on how the pieces are cut, nor on
  // who has them.
  void each(const std::function<void(const GradientPiece&)>& change) {
    if (!source_) return;
    source_->visit(factor_, change);
    factor_ = 1;
    stale_ = changed_ = true;
  }

  // No update in this step: parameters and the optimizer's state stay as they are, steps() does not
  // count it, and the gradient is dropped. Its samples count.
  void skip() { skipped_ = true; }

  // Whether all of it was computed in the step that has just ended: not so under `abs` with several
  // workers.
  bool of_one_step() const { return of_one_step_; }

  // The product of what scale() and clip() were given, since each() if that was called.
  double factor() const { return factor_; }

  bool skipped() const { return skipped_; }  // whether skip() was called
  bool changed() const { return changed_; }  // whether each() was called

  // Internal: what the same calls of scale() and clip() would multiply another gradient of that
  // norm by.
  double factor_for(double norm) const {
    const double scaled = norm * std::abs(scaled_);
    return scaled > limit_ ? scaled_ * (limit_ / scaled) : scaled_;
  }

  // Internal: where the elements are.
  class Source {
   public:
    virtual ~Source() = default;
    // Multiplies all elements by what is still to be multiplied and `factor`, and shows them.
    virtual void visit(double factor, const std::function<void(const GradientPiece&)>& change) = 0;
    virtual double norm() = 0;  // of all elements as they are
  };

  // Internal: made for each step. Without a source each() does nothing.
  explicit AveragedGradients(double norm, bool of_one_step = true)
      : norm_(norm), of_one_step_(of_one_step) {}

  // Internal: before it is shown.
  void set_source(Source* source) { source_ = source; }

 private:
  mutable double norm_;
  mutable bool stale_ = false;
  double factor_ = 1;
  double scaled_ = 1;                                       // by scale() alone
  double limit_ = std::numeric_limits<double>::infinity();  // of the norm, by clip()
  bool skipped_ = false, changed_ = false;
  bool of_one_step_;
  Source* source_ = nullptr;
};

}  // namespace skein

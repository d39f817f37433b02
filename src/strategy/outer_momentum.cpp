#include "strategy/outer_momentum.h"

#include <utility>

#include "kernels/kernels.h"
#include "kernels/threads.h"

namespace skein {

OuterMomentum::OuterMomentum(Worker& worker, double momentum)
    : momentum_(worker.size() > 1 ? static_cast<float>(momentum) : 0),
      share_(1 / static_cast<float>(worker.size())) {
  if (!on()) return;
  anchor_ = worker.arena().plane("mean of the last round");
  velocity_ = worker.arena().plane("outer momentum");
}

void OuterMomentum::move_on(Span model, Span sum) {
  const bool first = !std::exchange(anchored_, true);
  in_one_pass(model, [&](Range part) {
    const Span anchor = anchor_.at(part), velocity = velocity_.at(part);
    if (first) return copy_scaled(anchor, share_, sum.at(part));
    scale(velocity, momentum_);
    axpy(velocity, -1, anchor);
    copy_scaled(anchor, share_, sum.at(part));
    add(velocity, anchor);
    axpy(anchor, momentum_, velocity);
    axpy(model.at(part), momentum_, velocity);
  });
}

void OuterMomentum::stop() {
  if (!std::exchange(anchored_, false)) return;
  fill(velocity_, 0);
}

}  // namespace skein

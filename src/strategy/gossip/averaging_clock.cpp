#include "strategy/gossip/averaging_clock.h"

#include <algorithm>

namespace skein {

// Evenly spaced ones begin somewhere in the first interval, so that workers do not all propose at
// the same time.
AveragingClock::AveragingClock(double per_gradient, Schedule schedule, Rng rng)
    : per_gradient_(per_gradient), schedule_(schedule), rng_(rng), next_(0) {
  next_ = schedule == Schedule::fixed ? rng_.uniform() / per_gradient : wait();
}

double AveragingClock::wait() {
  return schedule_ == Schedule::fixed ? 1 / per_gradient_ : rng_.exponential(per_gradient_);
}

void AveragingClock::step_begins(Time now) {
  in_step_ = true;
  begin_ = now;
}

void AveragingClock::step_ends(Duration compute) {
  in_step_ = false;
  ++steps_;
  const double newest = seconds(compute);
  seconds_ = seconds_ > 0 ? (seconds_ + newest) / 2 : newest;
}

std::int64_t AveragingClock::due(Time now) {
  auto time = static_cast<double>(steps_);
  if (in_step_ && seconds_ > 0) time += std::min(1.0, seconds(now - begin_) / seconds_);
  for (; next_ <= time; next_ += wait()) ++due_;
  return due_;
}

Time AveragingClock::next() const {
  const double rest = next_ - static_cast<double>(steps_);
  if (!in_step_ || seconds_ <= 0 || rest > 1) return kNever;
  // A nanosecond later, or rounding might find it not yet due.
  return begin_ + from_seconds(rest * seconds_) + Duration(1);
}

}  // namespace skein

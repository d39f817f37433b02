// When a worker should average with somebody: a random process in its own time, whose unit is one
// gradient.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/rng.h"

namespace skein {

// Within a step time passes as the steps before let expect, but never beyond the step's end.
class AveragingClock {
 public:
  enum class Schedule : std::uint8_t { poisson, fixed };

  // `per_gradient` averagings a gradient on average, at random times or evenly.
  AveragingClock(double per_gradient, Schedule schedule, Rng rng);

  void step_begins(Time now);
  void step_ends(Duration compute);

  // Running mean, with weight ½, of what a gradient takes; 0 before the first.
  double seconds_per_gradient() const { return seconds_; }
  std::int64_t gradients() const { return steps_; }

  // How many averagings should have been begun by now, in all.
  std::int64_t due(Time now);

  // Where its random numbers stand.
  const Rng& rng() const { return rng_; }
  void go_on_with(const Rng& rng) { rng_ = rng; }

  // When the next will be due; kNever when only the end of the step can tell.
  Time next() const;

 private:
  double wait();

  double per_gradient_;
  Schedule schedule_;
  Rng rng_;
  double seconds_ = 0;
  std::int64_t steps_ = 0, due_ = 0;
  double next_;  // when, in gradients
  bool in_step_ = false;
  Time begin_{};
};

}  // namespace skein

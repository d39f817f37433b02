// Emulated computation: makes a worker as slow as a slower machine would be.
#pragma once

#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"
#include "emulate/pace.h"

namespace skein {

// A micro-batch takes at least a given time, the update that came before it included: one third in
// forward, two thirds in backward, spread over backward in proportion to the parameters whose
// gradients are done, so that communication can overlap with it as it would on the slower machine.
// Real computation that takes longer is not shortened.
class Pacer {
 public:
  // `step`: what a micro-batch of `batch` samples takes at speed 1; zero: what it really takes.
  // `pace` says how much longer each one takes; nothing: none does.
  Pacer(const Clock& clock, const Arena& arena, Duration step, std::int64_t batch,
        std::optional<Pace> pace);

  // The slots have other numbers: those of `arena`.
  void lay_out(const Arena& arena);

  bool active() const { return step_ > Duration(0) || pace_; }
  void begin(std::int64_t samples, Duration updated);  // before forward, after so long an update
  void reading(int slot);                              // in forward, before a read that may wait
  void waited(Duration time);  // and after it: the computation goes on that much later
  void forward_done();
  void gradient_done(int slot);  // in backward
  void backward_done();

 private:
  void sleep_until(Time time);

  const Clock& clock_;
  std::vector<double> weight_;  // of each slot among all parameters
  Duration step_;
  std::int64_t batch_;
  std::optional<Pace> pace_;
  Time started_;
  double factor_ = 1;  // of this micro-batch
  Time begin_{};
  Duration target_{};
  Duration slept_{};
  double real_per_sample_ = 0;  // smoothed, seconds
  std::int64_t samples_ = 0;
  double done_ = 0;  // part of backward
};

}  // namespace skein

// A momentum of the mean of the workers' models, from one round of averaging to the next: what all
// have learnt together goes on while each learns by itself.
//
//   v ← μ v + (a − A);   x ← x + μ v on every worker;   A ← a + μ v
//
// `a` is a round's mean and A where the round before has left it, so that a − A is what local steps
// have made of it since. With one local step between rounds that is SGD with Nesterov's momentum.
// All workers have the same v, bit for bit, since all have the same means.
#pragma once

#include "strategy/worker.h"

namespace skein {

inline constexpr double kMostOuterMomentum = 0.999;

// Memory: two planes, A and v; none where `momentum` is 0 or the worker is alone.
class OuterMomentum {
 public:
  OuterMomentum(Worker& worker, double momentum);

  bool on() const { return momentum_ > 0; }

  // A round's mean, times the number of workers, has been taken in: moves `model` on. The first one
  // only says where the mean is.
  void move_on(Span model, Span sum);

  // Begins anew: the next round is the first one.
  void stop();

 private:
  float momentum_, share_;
  Span anchor_, velocity_;  // A and v
  bool anchored_ = false;
};

}  // namespace skein

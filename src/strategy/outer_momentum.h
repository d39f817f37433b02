// A momentum of the mean of the workers' models, from one round of averaging to the next: what all
// have learnt together goes on while each learns by itself.
//
//   v ← μ v + (a − A);   x ← x + μ v on every worker;   A ← a + μ v
//
// `a` is a round's mean and A where the round before has left it, so that a − A is what local steps
// have made of it since. With one local step between rounds that is SGD with Nesterov's momentum.
// All workers have the same v, bit for bit, since all have the same means. It belongs to the run:
// evaluations and checkpoints leave it as it is, and a checkpoint keeps A and v. What the program
// writes to the model after a flush moves A, too, and is no part of v. A frozen parameter is not
// moved; once all have frozen it, its v goes to zero by itself within two rounds.
#pragma once

#include "strategy/option_reader.h"
#include "strategy/shared_state.h"
#include "strategy/worker.h"

namespace skein {

// Memory: two planes, A and v; none where `momentum` is 0 or the worker is alone.
class OuterMomentum {
 public:
  OuterMomentum(Worker& worker, double momentum);

  // The option of that name.
  static double read(OptionReader& reader);

  bool on() const { return momentum_ > 0; }

  // A round's mean, times the number of workers, has been taken in: moves `model` on. The first one
  // only says where the mean is.
  void move_on(Span model, Span sum);

  // A flush has ended: remembers the model in `place`, where it stays until follow_writes(), which
  // moves A by what the program has written to the model since.
  void remember(Span model, Span place);
  void follow_writes(Span model, Span place);

  // A and v, which hold something after the first round.
  SharedState shared_state();

 private:
  Worker& worker_;
  float momentum_, share_;
  Span anchor_, velocity_;  // A and v
  bool anchored_ = false;
  bool remembers_ = false;
};

}  // namespace skein

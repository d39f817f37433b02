// The time in which a module is the one to judge, as a scope.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "launch/board.h"
#include "torch/distributed_impl.h"
#include "torch/lent_model.h"

namespace skein {

// Begins an evaluation and ends it: Distributed::evaluate() is one around its `body`, and a binding
// to a language with scopes of its own holds one as long as such a scope lasts. All workers begin
// one together, after step(); each ends its own when it likes, on the thread that began it. The
// constructor throws what evaluate() throws before it calls `body`.
class Evaluation {
 public:
  Evaluation(Distributed::Impl& run, Weights weights);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();  // end(), if that was not called; an error is lost

  // The module is again as it was before, and may be trained.
  void end();

 private:
  // What the module has in place of its own values. The last member goes first.
  struct Lent {
    Lent(Distributed::Impl& run, Weights weights);

    LentModel model;
    LentMode mode;
    torch::NoGradGuard no_grad;
    Workers::Calls::Scope users_code;
  };

  Distributed::Impl& run_;
  Workers::Calls::Scope call_;
  PhaseScope phase_;
  std::optional<Lent> lent_;
};

}  // namespace skein

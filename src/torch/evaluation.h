// The time in which a module is the one to judge, as a scope.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "observe/board.h"
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

  // What `skein train` has otherwise: workers do not come together for it, under no strategy, but
  // each when it likes; and its buffers are those that `buffers` returns, with the mean of the
  // models in the module: the same on all workers.
  using Buffers = std::function<std::vector<NamedTensor>()>;
  Evaluation(Distributed::Impl& run, const Buffers& buffers);
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();  // end(), if that was not called; an error is lost

  // The module is again as it was before, and may be trained.
  void end();

 private:
  // What the module has in place of its own values. The last member goes first.
  struct Lent {
    Lent(Distributed::Impl& run, Weights weights, const Buffers& buffers);

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

// Distributed::save() with the values that `values` returns after the flush, in place of the
// module's own; the same on all workers.
void save_model(Distributed& run, const std::string& path, const Evaluation::Buffers& values);

}  // namespace skein

// The model that should be judged or given away: averaged over workers, and perhaps over time.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "skein/torch.h"
#include "torch/named_tensor.h"
#include "torch/weight_average.h"

namespace skein {

// Makes averages of a run's model, and changes nothing of it. For the user's thread, between steps;
// all workers call the same, but for model_apart() and ema().
class ModelAverages {
 public:
  explicit ModelAverages(Distributed::Impl& run) : run_(run) {}

  // Returns the mean of all workers' parameters; an undefined tensor where they are equal, since
  // nobody has made a step since all came together.
  torch::Tensor parameters();

  // Returns copies of the module's buffers as they should be saved: floating-point ones averaged
  // over the workers, integer ones those of rank 0, or its own where rank 0 may be gone.
  std::vector<NamedTensor> buffers();

  // Returns the module's tensors under their names, with `values` in place of the live ones.
  std::vector<NamedTensor> tensors_to_save(const std::vector<NamedTensor>& values);

  // Returns a copy of the model where the strategy keeps it beside what forward reads, else null.
  std::shared_ptr<Memory> model_apart();

  // The moving average (see Distributed): null where none is kept; its values, of all workers where
  // theirs differ; ConfigError where it is asked for and not kept. After resumed_from() it can no
  // longer begin, since that checkpoint's average would be lost.
  void keep_ema(double decay);
  WeightAverage* ema() { return ema_.get(); }
  std::vector<NamedTensor> ema_values();
  void check_has(Weights weights) const;
  void resumed_from(const std::string& checkpoint) { resumed_from_ = checkpoint; }

  // Whether an Evaluation is under way, in which the module holds other values than its own.
  bool evaluating() const { return evaluating_; }
  void set_evaluating(bool evaluating) { evaluating_ = evaluating; }

 private:
  void average_over_workers(std::vector<NamedTensor>& tensors);

  Distributed::Impl& run_;
  std::unique_ptr<WeightAverage> ema_;
  std::string resumed_from_;  // empty: the run began with this program
  bool evaluating_ = false;
};

}  // namespace skein

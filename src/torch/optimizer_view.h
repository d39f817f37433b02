// A run's optimizer as torch's schedulers want to see it.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "torch/parameter_groups.h"

namespace skein {

// Has the groups of a run, with their parameters and rates, and no more: it makes no steps. What a
// scheduler writes into the rates is read when the run's next step ends.
class OptimizerView final : public torch::optim::Optimizer {
 public:
  // `options` are those of every group but for rate, weight decay and momentum. `rate` is the run's
  // before its schedule.
  OptimizerView(const ParameterGroups& groups, const torch::optim::OptimizerOptions& options,
                double rate);

  // ConfigError: the run's own step() is meant.
  torch::Tensor step(LossClosure closure = nullptr) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  std::vector<double> rates() const;
  void set_rates(const std::vector<double>& rates);
};

// What of a torch optimizer's options a parameter group may change; null where it has none such.
struct GroupOptions {
  double* weight_decay = nullptr;
  double* momentum = nullptr;
};
GroupOptions group_options_of(torch::optim::OptimizerOptions& options);

}  // namespace skein

// Which parameters of a bound module have which settings, and what their rates are now.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "optimize/groups.h"
#include "skein/recipe.h"
#include "torch/agreement.h"
#include "torch/binding.h"

namespace skein {

// The trained parameters, cut into groups that have the same settings throughout: the first is of
// those that no group of the recipe changes, and may be empty. It knows parameters by the
// order of registration, so it outlives changes of the arena's layout. Not thread-safe.
class ParameterGroups {
 public:
  struct Group {
    std::string name;
    std::vector<std::string> parameters;  // their first names
    std::vector<torch::Tensor> tensors;
    double factor = 1;  // of the run's learning rate
    std::optional<double> weight_decay, momentum;
  };

  // Throws ConfigError, with the group's name, for one without parameters and for bad numbers. The
  // module is not touched.
  ParameterGroups(const Binding& binding, const OptimizerSpec& recipe);

  const std::vector<Group>& groups() const { return groups_; }
  void set_factor(std::size_t group, double factor) { groups_[group].factor = factor; }

  // The run begins: those that are frozen need no gradients any more.
  void start();

  // Neither gradients, values nor state of those parameters change from the next update on, or do
  // again. The run has made `steps` updates. ConfigError when there are none. `who` is the caller,
  // for the message.
  void set_frozen(const WhichParameters& which, bool frozen, std::int64_t steps,
                  const std::string& who);
  std::vector<std::string> frozen() const;  // first names, in the order of registration

  // Of each parameter, in the order of registration: how many of the run's first `steps` updates
  // were made while it was frozen. And back, for a run that goes on after `steps` updates: what is
  // more than those counts as all of them.
  std::vector<std::int64_t> missed(std::int64_t steps) const;
  void restore_missed(const std::vector<std::int64_t>& missed, std::int64_t steps);
  std::vector<std::string> names() const;  // first names, in the order of registration

  // For the arena as it is; null where all parameters are alike.
  std::shared_ptr<const Groups> rules(const Binding& binding) const;

  // What must be the same on all workers.
  Facts facts() const;

 private:
  struct Entry {
    ParameterInfo info;
    torch::Tensor tensor;
    std::size_t group = 0;
    bool frozen = false;
    std::int64_t frozen_at = 0;  // updates that the run had made then
    std::int64_t missed = 0;     // updates while it was frozen before
  };

  static void freeze(Entry& entry, bool frozen, std::int64_t steps);

  std::vector<Group> groups_;
  std::vector<Entry> entries_;  // in the order of registration
};

// The factor by which `base` becomes `rate`, with no rounding where that can be.
double factor_between(double base, double rate);

}  // namespace skein

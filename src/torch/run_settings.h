// What the user changes of a recipe while the run goes on: rates, and which parameters are trained.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/courier.h"
#include "strategy/worker.h"
#include "torch/optimizer_view.h"
#include "torch/parameter_groups.h"

namespace skein {

// Changes the rules by which a worker updates its model. A change counts from the next update on.
// For the user's thread, between steps.
class RunSettings {
 public:
  // `groups` are those of `binding`, and `worker` updates by them. All must outlive this object.
  RunSettings(ParameterGroups& groups, const Binding& binding, const OptimizerSpec& recipe,
              const Optimizer& optimizer, Worker& worker, Courier& courier);

  void start();  // the run begins: from now on frozen parameters need no gradients

  // See Distributed.
  double learning_rate() const;
  void set_learning_rate(double rate);
  void set_frozen(const WhichParameters& which, bool frozen);
  torch::optim::Optimizer& view() { return view_; }

  void adopt_rates();  // takes over what a scheduler wrote since the last step

  // How many updates of this worker each parameter has missed while it was frozen, in the order of
  // registration.
  std::vector<std::int64_t> missed() const;
  void restore_missed(const std::vector<std::int64_t>& missed);

  // The changes as text, for checkpoints. What is not changed is left out, so that the recipe of
  // the resumed run holds.
  using Text = std::map<std::string, std::string>;
  Text text();

  // ConfigError for settings that are impossible after `steps` updates, or that belong to another
  // number of groups. restore() checks first, and then applies them.
  void check(const Text& settings, std::int64_t steps) const;
  void restore(const Text& settings, std::int64_t steps);

 private:
  void set_base_rate(double rate);
  void apply_groups();
  std::vector<std::int64_t> missed_in(const Text& settings, std::int64_t steps) const;

  ParameterGroups& groups_;
  const Binding& binding_;
  Worker& worker_;
  Courier& courier_;
  OptimizerView view_;
  std::vector<double> rates_;  // of the view when it was last looked at
  const std::vector<double> first_rates_;
  const std::vector<std::string> first_frozen_;
};

}  // namespace skein

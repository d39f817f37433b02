#include "torch/optimizer_view.h"

#include "skein/error.h"

namespace skein {
namespace {

using namespace torch::optim;

std::vector<OptimizerParamGroup> torch_groups(const ParameterGroups& groups) {
  std::vector<OptimizerParamGroup> result;
  for (const ParameterGroups::Group& group : groups.groups()) result.emplace_back(group.tensors);
  return result;
}

[[noreturn]] void refuse(const char* what, const char* instead) {
  throw ConfigError(
      std::string("Distributed::optimizer() is there for learning-rate schedulers: ") + what +
      " is not its own; expected " + instead);
}

}  // namespace

GroupOptions group_options_of(OptimizerOptions& options) {
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options))
    return {&sgd->weight_decay(), &sgd->momentum()};
  if (auto* adam = dynamic_cast<AdamOptions*>(&options)) return {&adam->weight_decay(), nullptr};
  if (auto* adamw = dynamic_cast<AdamWOptions*>(&options)) return {&adamw->weight_decay(), nullptr};
  if (auto* rmsprop = dynamic_cast<RMSpropOptions*>(&options))
    return {&rmsprop->weight_decay(), &rmsprop->momentum()};
  if (auto* adagrad = dynamic_cast<AdagradOptions*>(&options))
    return {&adagrad->weight_decay(), nullptr};
  return {};
}

OptimizerView::OptimizerView(const ParameterGroups& groups, const OptimizerOptions& options,
                             double rate)
    : Optimizer(torch_groups(groups), options.clone()) {
  for (std::size_t i = 0; i < groups.groups().size(); ++i) {
    const ParameterGroups::Group& group = groups.groups()[i];
    OptimizerOptions& own = param_groups()[i].options();
    own.set_lr(rate * group.factor);
    const GroupOptions settings = group_options_of(own);
    if (settings.weight_decay && group.weight_decay) *settings.weight_decay = *group.weight_decay;
    if (settings.momentum && group.momentum) *settings.momentum = *group.momentum;
  }
}

torch::Tensor OptimizerView::step(LossClosure) { refuse("step()", "the run's step(samples)"); }
void OptimizerView::save(torch::serialize::OutputArchive&) const {
  refuse("the state", "the run's checkpoints");
}
void OptimizerView::load(torch::serialize::InputArchive&) {
  refuse("the state", "the run's checkpoints");
}

std::vector<double> OptimizerView::rates() const {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

void OptimizerView::set_rates(const std::vector<double>& rates) {
  for (std::size_t i = 0; i < rates.size(); ++i) param_groups()[i].options().set_lr(rates[i]);
}

}  // namespace skein

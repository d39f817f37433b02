#include "torch/make_optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "optimize/adamw.h"
#include "optimize/sgd.h"
#include "skein/error.h"
#include "torch/torch_optimizer.h"

namespace skein {
namespace {

using Kind = OptimizerSpec::Kind;

bool groups_have_momentum(const ParameterGroups& groups) {
  return std::ranges::any_of(groups.groups(),
                             [](const auto& each) { return each.momentum.value_or(0) > 0; });
}

void refuse_momentum(const ParameterGroups& groups) {
  for (const auto& each : groups.groups())
    if (each.momentum)
      throw ConfigError(fmt::format(
          "parameter group {} sets a momentum, which AdamW does not have; expected none",
          each.name));
}

// A torch optimizer has options of its own for what it would be unclear to say twice.
void check_torch(const OptimizerSpec& recipe) {
  const OptimizerSpec plain(Kind::torch, recipe.learning_rate);
  const auto refuse = [](const char* what) {
    throw ConfigError(
        fmt::format("{} of a torch optimizer: expected it in that optimizer's own options", what));
  };
  if (!recipe.torch || !recipe.torch->make)
    throw ConfigError("a torch optimizer without a function that makes it; expected one");
  if (recipe.momentum_ != plain.momentum_) refuse("momentum()");
  if (recipe.nesterov_) refuse("nesterov()");
  if (recipe.beta1 != plain.beta1 || recipe.beta2 != plain.beta2) refuse("betas()");
  if (recipe.epsilon_ != plain.epsilon_) refuse("epsilon()");
  if (recipe.weight_decay_ != plain.weight_decay_) refuse("weight_decay()");
}

std::vector<TensorPlace> tensors_of(const Binding& binding) {
  std::vector<TensorPlace> tensors;
  for (int slot = 0; slot < binding.slots(); ++slot)
    tensors.push_back({binding.arena().slots()[static_cast<std::size_t>(slot)].range,
                       binding.parameter(slot).sizes().vec()});
  return tensors;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& recipe,
                                          const ParameterGroups& groups, const Binding& binding,
                                          const Allocate& allocate) {
  const std::size_t size = binding.arena().size();
  switch (recipe.kind) {
    case Kind::sgd:
      return std::make_unique<Sgd>(size,
                                   SgdOptions{recipe.momentum_, recipe.weight_decay_,
                                              recipe.nesterov_, groups_have_momentum(groups)},
                                   allocate);
    case Kind::adamw:
      refuse_momentum(groups);
      return std::make_unique<Adamw>(
          size, AdamwOptions{recipe.beta1, recipe.beta2, recipe.epsilon_, recipe.weight_decay_},
          allocate);
    case Kind::torch:
      break;
  }
  check_torch(recipe);
  auto optimizer =
      std::make_unique<TorchOptimizer>(size, recipe.torch->make, allocate, tensors_of(binding));
  optimizer->check(groups);
  return optimizer;
}

Facts facts_of(const OptimizerSpec& recipe, const Optimizer& optimizer) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  Facts facts{{"learning rate", number(recipe.learning_rate)},
              {"no_decay_1d", number(recipe.no_decay_1d_)},
              {"clip", number(recipe.clip_)},
              {"schedule", recipe.schedule_},
              {"total samples of the schedule", number(recipe.total_samples_)}};
  if (recipe.kind == Kind::torch) {
    facts.push_back({"optimizer", dynamic_cast<const TorchOptimizer&>(optimizer).description()});
    return facts;
  }
  facts.push_back({"optimizer", recipe.kind == Kind::sgd ? "sgd" : "adamw"});
  facts.push_back({"weight decay", number(recipe.weight_decay_)});
  if (recipe.kind == Kind::sgd) {
    facts.push_back({"momentum", number(recipe.momentum_)});
    facts.push_back({"nesterov", number(recipe.nesterov_)});
  } else {
    facts.push_back({"betas", fmt::format("{}, {}", recipe.beta1, recipe.beta2)});
    facts.push_back({"epsilon", number(recipe.epsilon_)});
  }
  return facts;
}

std::unique_ptr<torch::optim::OptimizerOptions> torch_options(const OptimizerSpec& recipe,
                                                              const Optimizer& optimizer) {
  if (recipe.kind == Kind::sgd)
    return std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(recipe.learning_rate)
                                                          .momentum(recipe.momentum_)
                                                          .weight_decay(recipe.weight_decay_)
                                                          .nesterov(recipe.nesterov_));
  if (recipe.kind == Kind::adamw)
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(recipe.learning_rate)
            .betas({recipe.beta1, recipe.beta2})
            .eps(recipe.epsilon_)
            .weight_decay(recipe.weight_decay_));
  return dynamic_cast<const TorchOptimizer&>(optimizer).options().clone();
}

}  // namespace skein

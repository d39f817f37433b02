// The optimizer that a recipe asks for.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "optimize/optimizer.h"
#include "skein/recipe.h"
#include "torch/agreement.h"
#include "torch/binding.h"
#include "torch/parameter_groups.h"

namespace skein {

// For the module's planes, with state where `allocate` puts it. Throws ConfigError for a recipe
// that cannot be.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& recipe,
                                          const ParameterGroups& groups, const Binding& binding,
                                          const Allocate& allocate);

// What of the recipe must be the same on all workers; `optimizer` was made of it.
Facts facts_of(const OptimizerSpec& recipe, const Optimizer& optimizer);

// Torch's own options for the same optimizer.
std::unique_ptr<torch::optim::OptimizerOptions> torch_options(const OptimizerSpec& recipe,
                                                              const Optimizer& optimizer);

}  // namespace skein

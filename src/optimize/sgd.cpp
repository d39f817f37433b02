#include "optimize/sgd.h"

#include "kernels/update.h"
#include "optimize/options.h"
#include "skein/error.h"

namespace skein {
namespace {

std::vector<std::string> state_names(const SgdOptions& options) {
  const bool none = options.momentum == 0 && !options.groups_have_momentum;
  return none ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}

}  // namespace

Sgd::Sgd(std::size_t size, const SgdOptions& options, Allocate allocate)
    : options_(options), state_(size, state_names(options), std::move(allocate)) {
  require_not_negative("weight decay", options.weight_decay);
  require_not_negative("momentum", options.momentum);
  if (options.nesterov && state_.vector_count() == 0)
    throw ConfigError("momentum is 0: Nesterov's update expects a number above 0");
}

void Sgd::update(Range range, Span parameters, Span gradients, const UpdateContext& context) {
  for_trained(context.groups.get(), range, gradients, [&](const GroupRule& rule) {
    const SgdFactors factors{
        .learning_rate = static_cast<float>(context.learning_rate * rule.lr_scale),
        .momentum = static_cast<float>(rule.momentum.value_or(options_.momentum)),
        .weight_decay = static_cast<float>(rule.weight_decay.value_or(options_.weight_decay)),
        .gradient_scale = context.gradient_scale,
        .nesterov = options_.nesterov};
    state_.split(rule.range, [&](Range piece, Range at) {
      const Span p = parameters.at(piece), g = gradients.at(piece);
      if (state_.vector_count() == 0)
        sgd_update(p, g, factors);
      else
        sgd_update(p, g, state_.vector(0).at(at), factors);
    });
  });
}

}  // namespace skein

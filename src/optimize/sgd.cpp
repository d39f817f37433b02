#include "optimize/sgd.h"

#include "kernels/update.h"
#include "optimize/options.h"
#include "skein/error.h"

namespace skein {
namespace {

std::vector<std::string> state_names(const SgdOptions& options) {
  return options.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}

}  // namespace

Sgd::Sgd(std::size_t size, const SgdOptions& options, std::vector<GroupRule> groups,
         Allocate allocate)
    : options_(options),
      groups_(size, options.weight_decay, std::move(groups)),
      state_(size, state_names(options), std::move(allocate)) {
  require_not_negative("momentum", options.momentum);
  if (options.nesterov && options.momentum == 0)
    throw ConfigError("momentum is 0: Nesterov's update expects a number above 0");
}

void Sgd::update(Range range, Span parameters, Span gradients, const UpdateContext& context) {
  groups_.split(range, [&](const GroupRule& rule) {
    const SgdFactors factors{
        .learning_rate = static_cast<float>(context.learning_rate * rule.lr_scale),
        .momentum = static_cast<float>(options_.momentum),
        .weight_decay = static_cast<float>(rule.weight_decay),
        .gradient_scale = context.gradient_scale,
        .nesterov = options_.nesterov};
    state_.split(rule.range, [&](Range piece, Range at) {
      const Span p = parameters.at(piece), g = gradients.at(piece);
      if (options_.momentum == 0)
        sgd_update(p, g, factors);
      else
        sgd_update(p, g, state_.vector(0).at(at), factors);
    });
  });
}

}  // namespace skein

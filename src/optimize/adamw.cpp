#include "optimize/adamw.h"

#include <cmath>

#include "kernels/update.h"
#include "optimize/options.h"

namespace skein {

Adamw::Adamw(std::size_t size, const AdamwOptions& options, Allocate allocate)
    : options_(options), state_(size, {"exp_avg", "exp_avg_sq"}, std::move(allocate)) {
  require_not_negative("weight decay", options.weight_decay);
  require_fraction("AdamW's beta1", options.beta1);
  require_fraction("AdamW's beta2", options.beta2);
  require_positive("AdamW's epsilon in float32", static_cast<float>(options.epsilon));
}

void Adamw::update(Range range, Span parameters, Span gradients, const UpdateContext& context) {
  SKEIN_CHECK(context.step >= 1, "update number {}: the first is 1", context.step);
  AdamwFactors factors{.gradient_scale = context.gradient_scale,
                       .beta1 = static_cast<float>(options_.beta1),
                       .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
                       .beta2 = static_cast<float>(options_.beta2),
                       .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
                       .epsilon = static_cast<float>(options_.epsilon)};
  for_trained(context.groups.get(), range, gradients, [&](const GroupRule& rule) {
    // In double precision until the last moment, as torch computes its scalars.
    const double rate = context.learning_rate * rule.lr_scale;
    const auto step = static_cast<double>(context.step_of(rule));
    const double correction1 = 1 - std::pow(options_.beta1, step);
    const double correction2 = 1 - std::pow(options_.beta2, step);
    factors.correction2_root = static_cast<float>(std::sqrt(correction2));
    factors.decay =
        static_cast<float>(1 - rate * rule.weight_decay.value_or(options_.weight_decay));
    factors.step_size = static_cast<float>(rate / correction1);
    state_.split(rule.range, [&](Range piece, Range at) {
      adamw_update(parameters.at(piece), gradients.at(piece), state_.vector(0).at(at),
                   state_.vector(1).at(at), factors);
    });
  });
}

}  // namespace skein

#include "torch/torch_optimizer.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/error.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

using namespace torch::optim;

void check_kind(const torch::optim::Optimizer* optimizer, const torch::Tensor& parameter) {
  constexpr auto kExpected = "expected SGD, Adam, AdamW, RMSprop or Adagrad";
  if (!optimizer)
    throw ConfigError(fmt::format("the optimizer's factory returned nothing; {}", kExpected));
  if (dynamic_cast<const LBFGS*>(optimizer))
    throw ConfigError(fmt::format(
        "LBFGS looks at all parameters together, so it cannot update them in ranges; {}",
        kExpected));
  if (!dynamic_cast<const SGD*>(optimizer) && !dynamic_cast<const Adam*>(optimizer) &&
      !dynamic_cast<const AdamW*>(optimizer) && !dynamic_cast<const RMSprop*>(optimizer) &&
      !dynamic_cast<const Adagrad*>(optimizer))
    throw ConfigError(fmt::format("optimizer {} is not known to be elementwise; {}",
                                  c10::demangle(typeid(*optimizer).name()), kExpected));
  const auto& groups = optimizer->param_groups();
  if (groups.size() != 1 || groups[0].params().size() != 1 ||
      !groups[0].params()[0].is_same(parameter))
    throw ConfigError(
        "the optimizer's factory must give all its parameters, unchanged, to one parameter group");
}

std::vector<std::pair<std::string, torch::Tensor*>> vectors_of(OptimizerParamState& state) {
  if (auto* sgd = dynamic_cast<SGDParamState*>(&state))
    return {{"momentum", &sgd->momentum_buffer()}};
  if (auto* adam = dynamic_cast<AdamParamState*>(&state))
    return {{"exp_avg", &adam->exp_avg()},
            {"exp_avg_sq", &adam->exp_avg_sq()},
            {"max_exp_avg_sq", &adam->max_exp_avg_sq()}};
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state))
    return {{"exp_avg", &adamw->exp_avg()},
            {"exp_avg_sq", &adamw->exp_avg_sq()},
            {"max_exp_avg_sq", &adamw->max_exp_avg_sq()}};
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state))
    return {{"square_avg", &rmsprop->square_avg()},
            {"momentum_buffer", &rmsprop->momentum_buffer()},
            {"grad_avg", &rmsprop->grad_avg()}};
  return {{"sum", &dynamic_cast<AdagradParamState&>(state).sum()}};
}

void set_steps_taken(OptimizerParamState& state, std::int64_t steps) {
  if (auto* adam = dynamic_cast<AdamParamState*>(&state)) adam->step(steps);
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state)) adamw->step(steps);
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state)) rmsprop->step(steps);
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) adagrad->step(steps);
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::size_t plane_size, const Factory& make, Allocate allocate)
    : plane_size_(plane_size), allocate_(std::move(allocate)), parameter_(torch::zeros({1})) {
  parameter_.mutable_grad() = torch::zeros({1});
  optimizer_ = make({parameter_});
  check_kind(optimizer_.get(), parameter_);
  if (auto* sgd = dynamic_cast<SGDOptions*>(&optimizer_->param_groups()[0].options()))
    dampening_ = sgd->dampening();
  find_state();
}

// A step on one zero makes torch create the state that its options need, with initial values, under
// whatever key its version uses for the tensor.
void TorchOptimizer::find_state() {
  optimizer_->step();
  if (parameter_.item<float>() != 0)
    throw ConfigError(fmt::format(
        "the optimizer turns a zero with zero gradient into {}; expected 0: eps must be "
        "above 0",
        parameter_.item<float>()));
  std::vector<std::string> names;
  for (auto& entry : optimizer_->state()) {
    for (const auto& [name, tensor] : vectors_of(*entry.second)) {
      if (!tensor->defined()) continue;
      names.push_back(name);
      held_.push_back({tensor, tensor->item<float>()});
    }
  }
  state_ = std::make_unique<OwnedState>(plane_size_, std::move(names), allocate_);
}

void TorchOptimizer::update(Range range, Span parameters, Span gradients,
                            const UpdateContext& context) {
  SKEIN_CHECK(parameters.count == plane_size_ && gradients.count == plane_size_,
              "planes of {} and {} elements, made for {}", parameters.count, gradients.count,
              plane_size_);
  torch::NoGradGuard no_grad;
  // An update is no read by the model: a ReadHook would wait for it, that is for itself.
  at::DisableRecordFunctionGuard unobserved;
  const TorchOnQueue scope(parameters.device.kind == Device::gpu ? current_queue() : nullptr);

  OptimizerOptions& options = optimizer_->param_groups()[0].options();
  options.set_lr(context.learning_rate);
  // Torch starts SGD's momentum at the first gradient, undamped; here it starts at zero.
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options))
    sgd->dampening(context.step == 1 ? 0 : dampening_);

  state_->split(range, [&](Range piece, Range piece_of_state) {
    torch::Tensor gradient = tensor_over(gradients.at(piece));
    if (context.gradient_scale != 1) gradient.mul_(context.gradient_scale);
    parameter_.set_data(tensor_over(parameters.at(piece)));
    parameter_.mutable_grad() = gradient;
    bind_state(piece_of_state, context);
    optimizer_->step();
    for (std::size_t i = 0; i < held_.size(); ++i)
      SKEIN_CHECK(held_[i].tensor->data_ptr() == state_->vector(i).at(piece_of_state).data,
                  "torch replaced a state vector instead of writing to it");
    gradient.zero_();
  });
}

std::string TorchOptimizer::description() const {
  const OptimizerOptions& options = optimizer_->param_groups()[0].options();
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options))
    return fmt::format("SGD with momentum {}, dampening {}, weight decay {}, nesterov {}",
                       sgd->momentum(), dampening_, sgd->weight_decay(), sgd->nesterov());
  const auto adam_like = [](const char* name, const auto& adam) {
    return fmt::format("{} with betas {}, {}, eps {}, weight decay {}, amsgrad {}", name,
                       std::get<0>(adam.betas()), std::get<1>(adam.betas()), adam.eps(),
                       adam.weight_decay(), adam.amsgrad());
  };
  if (const auto* adam = dynamic_cast<const AdamOptions*>(&options))
    return adam_like("Adam", *adam);
  if (const auto* adamw = dynamic_cast<const AdamWOptions*>(&options))
    return adam_like("AdamW", *adamw);
  if (const auto* rmsprop = dynamic_cast<const RMSpropOptions*>(&options))
    return fmt::format("RMSprop with alpha {}, eps {}, weight decay {}, momentum {}, centered {}",
                       rmsprop->alpha(), rmsprop->eps(), rmsprop->weight_decay(),
                       rmsprop->momentum(), rmsprop->centered());
  const auto& adagrad = dynamic_cast<const AdagradOptions&>(options);
  return fmt::format("Adagrad with lr decay {}, weight decay {}, initial value {}, eps {}",
                     adagrad.lr_decay(), adagrad.weight_decay(),
                     adagrad.initial_accumulator_value(), adagrad.eps());
}

void TorchOptimizer::bind_state(Range range_of_state, const UpdateContext& context) {
  for (std::size_t i = 0; i < held_.size(); ++i) {
    *held_[i].tensor = tensor_over(state_->vector(i).at(range_of_state));
    if (context.step == 1 && held_[i].initial != 0) held_[i].tensor->fill_(held_[i].initial);
  }
  for (auto& entry : optimizer_->state()) set_steps_taken(*entry.second, context.step - 1);
}

}  // namespace skein

#include "torch/torch_optimizer.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "skein/error.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

using namespace torch::optim;

constexpr auto kExpected =
    "expected SGD, Adam, AdamW, RMSprop, Adagrad or an optimizer of your own that is elementwise "
    "or "
    "derives from skein::PerTensor";

std::string name_of(const torch::optim::Optimizer& optimizer) {
  return c10::demangle(typeid(optimizer).name());
}

bool is_torchs_own(const torch::optim::Optimizer* optimizer) {
  return dynamic_cast<const SGD*>(optimizer) || dynamic_cast<const Adam*>(optimizer) ||
         dynamic_cast<const AdamW*>(optimizer) || dynamic_cast<const RMSprop*>(optimizer) ||
         dynamic_cast<const Adagrad*>(optimizer);
}

void check_kind(const torch::optim::Optimizer* optimizer, const torch::Tensor& parameter) {
  if (!optimizer)
    throw ConfigError(fmt::format("the optimizer's factory returned nothing; {}", kExpected));
  if (dynamic_cast<const LBFGS*>(optimizer))
    throw ConfigError(fmt::format(
        "LBFGS looks at all parameters together, so it cannot update them in ranges; {}",
        kExpected));
  const auto& groups = optimizer->param_groups();
  if (groups.size() != 1 || groups[0].params().size() != 1 ||
      !groups[0].params()[0].is_same(parameter))
    throw ConfigError(
        "the optimizer's factory must give all its parameters, unchanged, to one parameter group; "
        "groups are the recipe's: OptimizerSpec::group()");
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
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) return {{"sum", &adagrad->sum()}};
  return {};
}

// Of the one parameter that the optimizer has. One of torch's own keeps it under whatever key its
// version uses.
std::vector<std::pair<std::string, torch::Tensor*>> state_of(torch::optim::Optimizer& optimizer,
                                                             const torch::Tensor& parameter) {
  std::vector<std::pair<std::string, torch::Tensor*>> vectors;
  if (auto* own = dynamic_cast<HasState*>(&optimizer)) {
    for (const auto& each : own->state_of(parameter)) vectors.push_back(each);
    return vectors;
  }
  for (auto& entry : optimizer.state()) {
    vectors = vectors_of(*entry.second);
    if (vectors.empty())
      throw ConfigError(
          fmt::format("optimizer {} has state that Skein does not know; expected it to derive from "
                      "skein::Elementwise or skein::PerTensor too, which say where its state is",
                      name_of(optimizer)));
  }
  return vectors;
}

void set_steps_taken(OptimizerParamState& state, std::int64_t steps) {
  if (auto* adam = dynamic_cast<AdamParamState*>(&state)) adam->step(steps);
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state)) adamw->step(steps);
  if (auto* rmsprop = dynamic_cast<RMSpropParamState*>(&state)) rmsprop->step(steps);
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) adagrad->step(steps);
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::size_t plane_size, const Factory& make, Allocate allocate,
                               std::vector<TensorPlace> tensors)
    : TorchOptimizer(Untried{}, plane_size, make, std::move(allocate)) {
  tensors_ = std::move(tensors);
  if (!is_torchs_own(optimizer_.get()) && !per_tensor_) try_in_pieces(make);
}

TorchOptimizer::TorchOptimizer(Untried, std::size_t plane_size, const Factory& make,
                               Allocate allocate)
    : plane_size_(plane_size), allocate_(std::move(allocate)), parameter_(torch::zeros({1})) {
  parameter_.mutable_grad() = torch::zeros({1});
  optimizer_ = make({parameter_});
  check_kind(optimizer_.get(), parameter_);
  per_tensor_ = dynamic_cast<const PerTensor*>(optimizer_.get()) != nullptr;
  OptimizerOptions& options = optimizer_->param_groups()[0].options();
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options)) dampening_ = sgd->dampening();
  const GroupOptions own = group_options_of(options);
  if (own.weight_decay) weight_decay_ = *own.weight_decay;
  if (own.momentum) momentum_ = *own.momentum;
  try {
    options.set_lr(options.get_lr());
  } catch (const c10::Error&) {
    throw ConfigError(fmt::format(
        "the options of optimizer {} have no learning rate; expected get_lr() and set_lr()",
        name_of(*optimizer_)));
  }
  find_state();
}

// A step on one zero makes torch create the state that its options need, with initial values.
void TorchOptimizer::find_state() {
  optimizer_->step();
  if (!per_tensor_ && parameter_.item<float>() != 0)
    throw ConfigError(fmt::format(
        "the optimizer turns a zero with zero gradient into {}; expected 0: eps must be "
        "above 0",
        parameter_.item<float>()));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_of(*optimizer_, parameter_)) {
    if (!tensor->defined()) continue;
    names.push_back(name);
    held_.push_back({tensor, tensor->item<float>()});
  }
  state_ = std::make_unique<OwnedState>(plane_size_, std::move(names), allocate_);
}

// What looks at more than an element at a time gives other numbers for pieces than for the whole.
void TorchOptimizer::try_in_pieces(const Factory& make) {
  constexpr std::size_t kSize = 24, kCut = 7;
  constexpr double kTolerance = 1e-4;
  const auto plane = [] { return allocate_on_heap(kSize); };
  TorchOptimizer whole(Untried{}, kSize, make, allocate_on_heap);
  TorchOptimizer pieces(Untried{}, kSize, make, allocate_on_heap);
  const auto p = plane(), q = plane(), g = plane(), h = plane();
  for (std::size_t i = 0; i < kSize; ++i)
    p->span().host()[i] = q->span().host()[i] = 1 + 0.25F * static_cast<float>(i);
  for (std::int64_t step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < kSize; ++i)
      g->span().host()[i] = h->span().host()[i] =
          0.5F * static_cast<float>(std::sin(static_cast<double>(i) + static_cast<double>(step)));
    const UpdateContext context{.learning_rate = 0.1, .step = step};
    whole.update({0, kSize}, p->span(), g->span(), context);
    pieces.update({kCut, kSize - kCut}, q->span(), h->span(), context);
    pieces.update({0, kCut}, q->span(), h->span(), context);
  }
  for (std::size_t i = 0; i < kSize; ++i) {
    const double one = p->span().host()[i], other = q->span().host()[i];
    if (!(std::abs(one - other) <= kTolerance * (1 + std::abs(one))))
      throw ConfigError(fmt::format(
          "optimizer {} is not elementwise: a vector in two pieces becomes another than as a "
          "whole. It may look at the norm of a tensor, as Lamb and Lars do. {}",
          name_of(*whole.optimizer_), kExpected));
  }
}

void TorchOptimizer::check(const ParameterGroups& groups) const {
  const GroupOptions own = group_options_of(optimizer_->param_groups()[0].options());
  const auto refuse = [&](const ParameterGroups::Group& group, const char* what,
                          const char* expected) {
    throw ConfigError(fmt::format("parameter group {} sets a {}, which optimizer {} {}", group.name,
                                  what, name_of(*optimizer_), expected));
  };
  for (const ParameterGroups::Group& group : groups.groups()) {
    if (group.weight_decay && !own.weight_decay)
      refuse(group, "weight decay", "does not have where Skein could find it");
    if (group.momentum && !own.momentum) refuse(group, "momentum", "does not have");
    if (group.momentum.value_or(0) > 0 && momentum_ == 0)
      refuse(group, "momentum", "has no state for; expected one above 0 in its own options too");
  }
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
  // State begins with the first step, of what is frozen then too.
  if (context.step == 1)
    state_->split(range, [&](Range, Range at) {
      for (std::size_t i = 0; i < held_.size(); ++i)
        if (held_[i].initial != 0) tensor_over(state_->vector(i).at(at)).fill_(held_[i].initial);
    });
  for_trained(context.groups.get(), range, gradients, [&](const GroupRule& rule) {
    set_options(rule, context);
    if (per_tensor_) return update_tensors(rule, parameters, gradients, context);
    state_->split(rule.range, [&](Range piece, Range piece_of_state) {
      const std::int64_t shape[] = {static_cast<std::int64_t>(piece.count)};
      update_piece(piece, piece_of_state, shape, parameters, gradients, context.gradient_scale,
                   context.step_of(rule));
    });
  });
}

void TorchOptimizer::update_tensors(const GroupRule& rule, Span parameters, Span gradients,
                                    const UpdateContext& context) {
  const Range range = rule.range;
  auto tensor = std::ranges::partition_point(
      tensors_, [&](const TensorPlace& each) { return each.range.end() <= range.offset; });
  for (; tensor != tensors_.end() && tensor->range.offset < range.end(); ++tensor) {
    if (tensor->range.count == 0) continue;
    SKEIN_CHECK(tensor->range.offset >= range.offset && tensor->range.end() <= range.end(),
                "update of [{}, +{}), which cuts the tensor at [{}, +{})", range.offset,
                range.count, tensor->range.offset, tensor->range.count);
    update_piece(tensor->range, state_->place_of(tensor->range), tensor->shape, parameters,
                 gradients, context.gradient_scale, context.step_of(rule));
  }
}

void TorchOptimizer::set_options(const GroupRule& rule, const UpdateContext& context) {
  OptimizerOptions& options = optimizer_->param_groups()[0].options();
  options.set_lr(context.learning_rate * rule.lr_scale);
  const GroupOptions own = group_options_of(options);
  if (own.weight_decay) *own.weight_decay = rule.weight_decay.value_or(weight_decay_);
  if (own.momentum) *own.momentum = rule.momentum.value_or(momentum_);
  // Torch starts SGD's momentum at the first gradient, undamped; here it starts at zero.
  if (auto* sgd = dynamic_cast<SGDOptions*>(&options))
    sgd->dampening(context.step_of(rule) == 1 ? 0 : dampening_);
}

void TorchOptimizer::update_piece(Range piece, Range piece_of_state, c10::IntArrayRef shape,
                                  Span parameters, Span gradients, float gradient_scale,
                                  std::int64_t step) {
  torch::Tensor gradient = tensor_over(gradients.at(piece)).view(shape);
  if (gradient_scale != 1) gradient.mul_(gradient_scale);
  parameter_.mutable_grad().reset();  // of another shape
  parameter_.set_data(tensor_over(parameters.at(piece)).view(shape));
  parameter_.mutable_grad() = gradient;
  bind_state(piece_of_state, shape, step);
  optimizer_->step();
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (held_[i].tensor->data_ptr() != state_->vector(i).at(piece_of_state).data)
      throw ConfigError(fmt::format(
          "optimizer {} replaced a tensor of its state; expected it to be changed in place",
          name_of(*optimizer_)));
  gradient.zero_();
}

std::string TorchOptimizer::description() const {
  const OptimizerOptions& options = this->options();
  if (const auto* sgd = dynamic_cast<const SGDOptions*>(&options))
    return fmt::format("SGD with momentum {}, dampening {}, weight decay {}, nesterov {}",
                       momentum_, dampening_, weight_decay_, sgd->nesterov());
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
  if (const auto* adagrad = dynamic_cast<const AdagradOptions*>(&options))
    return fmt::format("Adagrad with lr decay {}, weight decay {}, initial value {}, eps {}",
                       adagrad->lr_decay(), adagrad->weight_decay(),
                       adagrad->initial_accumulator_value(), adagrad->eps());
  return name_of(*optimizer_);
}

void TorchOptimizer::bind_state(Range range_of_state, c10::IntArrayRef shape, std::int64_t step) {
  for (std::size_t i = 0; i < held_.size(); ++i)
    *held_[i].tensor = tensor_over(state_->vector(i).at(range_of_state)).view(shape);
  if (auto* own = dynamic_cast<HasState*>(optimizer_.get())) own->set_steps(step - 1);
  for (auto& entry : optimizer_->state()) set_steps_taken(*entry.second, step - 1);
}

}  // namespace skein

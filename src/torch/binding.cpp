#include "torch/binding.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "skein/error.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

std::string print(const auto& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

void check_trainable(const std::string& name, const torch::Tensor& parameter,
                     const torch::Device& device) {
  if (parameter.scalar_type() != torch::kFloat32 || parameter.device() != device ||
      parameter.layout() != torch::kStrided)
    throw ConfigError(fmt::format(
        "parameter '{}' is {} {} on {}; expected a Strided Float (float32) on {}: convert the "
        "module before it is distributed",
        name, print(parameter.layout()), c10::toString(parameter.scalar_type()),
        print(parameter.device()), print(device)));
  if (!parameter.is_leaf())
    throw ConfigError(
        fmt::format("parameter '{}' is the result of a computation; expected a leaf tensor", name));
}

// Plain tensors, not autograd views of the plane: user code may call detach_() on a gradient.
torch::Tensor view_of(const torch::Tensor& plane, Range range, c10::IntArrayRef sizes) {
  return torch::empty({0}, plane.options())
      .set_(plane.storage(), static_cast<std::int64_t>(range.offset), sizes);
}

// True when `tensor` is, element for element, the memory of `view`.
bool is_at(const torch::Tensor& tensor, const torch::Tensor& view) {
  return tensor.defined() && tensor.layout() == torch::kStrided &&
         tensor.scalar_type() == view.scalar_type() && tensor.device() == view.device() &&
         tensor.data_ptr() == view.data_ptr() && tensor.sizes() == view.sizes() &&
         tensor.strides() == view.strides();
}

void add_once(std::vector<NamedTensor>& list, const std::string& name,
              const torch::Tensor& tensor) {
  const bool known = std::any_of(list.begin(), list.end(),
                                 [&](const auto& other) { return other.tensor.is_same(tensor); });
  if (!known) list.push_back({name, tensor});
}

// Floating-point ones and the others.
std::pair<std::vector<NamedTensor>, std::vector<NamedTensor>> buffers_of(
    const torch::nn::Module& module) {
  std::vector<NamedTensor> floats, integers;
  for (const auto& entry : module.named_buffers())
    if (entry.value().defined())
      add_once(entry.value().is_floating_point() ? floats : integers, entry.key(), entry.value());
  return {std::move(floats), std::move(integers)};
}

[[noreturn]] void refuse_change(const char* kind, const std::string& name,
                                const std::string& what) {
  throw ConfigError(fmt::format(
      "{} '{}' {}; expected the module as distribute() found it. Change it before, or end this "
      "Distributed and make a new one; new values come by run.load(), or by copy_() after flush()",
      kind, name, what));
}

}  // namespace

Binding::Binding(torch::nn::Module& module, Allocate allocate) : allocate_(std::move(allocate)) {
  collect(module);
  lay_out();
}

void Binding::reorder(const std::vector<int>& order) {
  SKEIN_CHECK(order.size() == bound_.size(), "an order of {} slots for {}", order.size(),
              bound_.size());
  std::vector<Bound> bound;
  for (const int slot : order) {
    SKEIN_CHECK(at(slot).parameter.defined(), "slot {} comes twice", slot);
    bound.push_back(std::exchange(bound_[static_cast<std::size_t>(slot)], Bound{}));
  }
  bound_ = std::move(bound);
  lay_out();
}

int Binding::reordered() const {
  int count = 0;
  for (int slot = 0; slot < slots(); ++slot) count += registered(slot) != slot;
  return count;
}

void Binding::lay_out() {
  std::vector<Arena::Parameter> layout;
  for (const Bound& bound : bound_)
    layout.push_back({bound.names.front(), static_cast<std::size_t>(bound.parameter.numel())});
  arena_ = std::make_shared<Arena>(layout, allocate_);
  bind();
}

Binding::~Binding() {
  torch::NoGradGuard no_grad;
  try {
    for (Bound& bound : bound_) {
      if (is_at(bound.parameter, bound.parameter_view))
        bound.parameter.set_data(bound.parameter_view.clone());
      if (is_at(bound.parameter.grad(), bound.gradient_view))
        bound.parameter.mutable_grad() = bound.gradient_view.clone();
    }
  } catch (const std::exception&) {
    // No memory for copies: what is left keeps the arena's, which lives as long as its tensors.
  }
}

void Binding::collect(torch::nn::Module& module) {
  std::unordered_map<const void*, std::size_t> known;
  for (const auto& entry : module.named_parameters()) {
    const torch::Tensor& parameter = entry.value();
    registered_.push_back({entry.key(), parameter});
    if (!parameter.requires_grad()) {
      add_once(frozen_parameters_, entry.key(), parameter);
      continue;
    }
    const auto [at, is_new] = known.try_emplace(parameter.unsafeGetTensorImpl(), bound_.size());
    if (is_new) {
      check_trainable(entry.key(), parameter,
                      bound_.empty() ? parameter.device() : bound_.front().parameter.device());
      Bound& bound = bound_.emplace_back();
      bound.registered = slots() - 1;
      bound.parameter = parameter;
    }
    bound_[at->second].names.push_back(entry.key());
  }
  if (bound_.empty())
    throw ConfigError(fmt::format(
        "module '{}' has no trainable parameter ({} frozen); expected at least one with "
        "requires_grad",
        module.name(), frozen_parameters_.size()));

  std::tie(float_buffers_, integer_buffers_) = buffers_of(module);

  std::vector<const Bound*> by_address;
  for (const Bound& bound : bound_) by_address.push_back(&bound);
  std::sort(by_address.begin(), by_address.end(), [](const Bound* a, const Bound* b) {
    return std::less<>()(a->parameter.data_ptr(), b->parameter.data_ptr());
  });
  for (std::size_t i = 1; i < by_address.size(); ++i) {
    const Bound &a = *by_address[i - 1], &b = *by_address[i];
    const auto overlap = at::get_overlap_status(a.parameter, b.parameter);
    if (overlap == at::MemOverlapStatus::Full || overlap == at::MemOverlapStatus::Partial)
      throw ConfigError(fmt::format(
          "parameters '{}' and '{}' are different tensors that share memory; expected tied weights "
          "to be one tensor registered under both names",
          a.names.front(), b.names.front()));
  }
}

void Binding::bind() {
  torch::NoGradGuard no_grad;
  parameter_plane_ = tensor_that_holds(arena_, arena_->parameters());
  gradient_plane_ = tensor_that_holds(arena_, arena_->gradients());
  for (std::size_t slot = 0; slot < bound_.size(); ++slot) {
    Bound& bound = bound_[slot];
    const Range range = arena_->slots()[slot].range;
    bound.parameter_view = view_of(parameter_plane_, range, bound.parameter.sizes());
    bound.gradient_view = view_of(gradient_plane_, range, bound.parameter.sizes());
  }
  rebind_parameters();
  rebind_gradients();
}

void Binding::rebind_parameters() {
  torch::NoGradGuard no_grad;
  for (Bound& bound : bound_) {
    torch::Tensor& parameter = bound.parameter;
    if (is_at(parameter, bound.parameter_view)) continue;
    check_trainable(bound.names.front(), parameter, parameter_plane_.device());
    if (parameter.sizes() != bound.parameter_view.sizes())
      throw ConfigError(fmt::format("parameter '{}' has shape {} now; expected {}, as when bound",
                                    bound.names.front(), print(parameter.sizes()),
                                    print(bound.parameter_view.sizes())));
    bound.parameter_view.copy_(parameter);
    parameter.set_data(bound.parameter_view);
  }
}

void Binding::check_module(const torch::nn::Module& module) {
  const auto refuse = [](const std::string& name, const char* what) {
    refuse_change("parameter", name, what);
  };
  const auto now = module.named_parameters();
  for (const auto& [name, tensor] : registered_) {
    const torch::Tensor* const present = now.find(name);
    if (present == nullptr) refuse(name, "is no longer in the module");
    if (!present->is_same(tensor))
      refuse(name, "is another tensor now, which is not trained: it, or its layer, was replaced");
  }
  for (const Bound& bound : bound_)
    if (!is_at(bound.parameter, bound.parameter_view))
      refuse(bound.names.front(),
             "has its values elsewhere now: by to(), set_data() or torch::load(), say");
  if (now.size() != registered_.size())
    for (const auto& each : now)
      if (std::ranges::find(registered_, each.key(), &Registered::name) == registered_.end())
        refuse(each.key(), "was registered after distribute(), so it is not trained");
  follow_buffers(module);
}

void Binding::follow_buffers(const torch::nn::Module& module) {
  auto [floats, integers] = buffers_of(module);
  const auto follow = [](std::vector<NamedTensor>& known, const std::vector<NamedTensor>& now) {
    for (const NamedTensor& each : now)
      if (std::ranges::find(known, each.name, &NamedTensor::name) == known.end())
        refuse_change("buffer", each.name, "was not there when the module was bound");
    for (NamedTensor& each : known) {
      const auto found = std::ranges::find(now, each.name, &NamedTensor::name);
      if (found == now.end()) refuse_change("buffer", each.name, "is no longer in the module");
      if (found->tensor.sizes() != each.tensor.sizes() ||
          found->tensor.scalar_type() != each.tensor.scalar_type())
        refuse_change(
            "buffer", each.name,
            fmt::format("is {} {} now, and was {} {}", c10::toString(found->tensor.scalar_type()),
                        print(found->tensor.sizes()), c10::toString(each.tensor.scalar_type()),
                        print(each.tensor.sizes())));
      each.tensor = found->tensor;
    }
  };
  follow(float_buffers_, floats);
  follow(integer_buffers_, integers);
}

void Binding::rebind_gradients() {
  for (int slot = 0; slot < slots(); ++slot) rebind_gradient(slot);
}

bool Binding::gradient_is_in_place(int slot) const {
  return is_at(at(slot).parameter.grad(), at(slot).gradient_view);
}

void Binding::rebind_gradient(int slot) {
  Bound& bound = bound_.at(static_cast<std::size_t>(slot));
  torch::Tensor& gradient = bound.parameter.mutable_grad();
  if (is_at(gradient, bound.gradient_view)) return;

  torch::NoGradGuard no_grad;
  if (!gradient.defined()) {
    bound.gradient_view.zero_();
  } else if (gradient.sizes() != bound.gradient_view.sizes()) {
    throw ConfigError(fmt::format("the gradient of parameter '{}' has shape {}; expected {}",
                                  bound.names.front(), print(gradient.sizes()),
                                  print(bound.gradient_view.sizes())));
  } else {
    bound.gradient_view.copy_(gradient.is_sparse() ? gradient.to_dense() : gradient);
  }
  gradient = bound.gradient_view;
}

}  // namespace skein

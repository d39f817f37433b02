// The model that should be judged or given away: averaged over workers, and perhaps over time.
#include <fmt/format.h>

#include <algorithm>

#include "torch/distributed_impl.h"
#include "torch/lent_model.h"
#include "torch/state_dict.h"

namespace skein {
namespace {

// Averages those tensors that are of double precision, or those that are not, as one flat tensor of
// type `type`.
void average(std::vector<NamedTensor>& tensors, torch::ScalarType type,
             const std::function<void(torch::Tensor& all)>& mean) {
  const auto belongs = [&](const torch::Tensor& tensor) {
    return (tensor.scalar_type() == torch::kFloat64) == (type == torch::kFloat64);
  };
  std::vector<torch::Tensor> flat;
  for (const NamedTensor& each : tensors)
    if (belongs(each.tensor)) flat.push_back(each.tensor.to(torch::kCPU, type).reshape({-1}));
  if (flat.empty()) return;
  torch::Tensor all = torch::cat(flat).contiguous();
  mean(all);
  std::int64_t offset = 0;
  for (NamedTensor& each : tensors) {
    if (!belongs(each.tensor)) continue;
    const std::int64_t count = each.tensor.numel();
    each.tensor.copy_(all.narrow(0, offset, count).view(each.tensor.sizes()));
    offset += count;
  }
}

}  // namespace

// Those of double precision travel as such; all others have room in a float.
void Distributed::Impl::average_over_workers(std::vector<NamedTensor>& tensors) {
  if (world_.size() == 1) return;
  average(tensors, torch::kFloat32, [this](torch::Tensor& all) {
    world_.impl().mean({all.data_ptr<float>(), static_cast<std::size_t>(all.numel())});
  });
  average(tensors, torch::kFloat64, [this](torch::Tensor& all) {
    double* first = all.data_ptr<double>();
    const std::vector<double> sums = world_.sum({first, first + all.numel()});
    std::copy(sums.begin(), sums.end(), first);
    const auto& present = world_.impl().present();
    all /= static_cast<double>(std::count(present.begin(), present.end(), true));
  });
}

std::vector<NamedTensor> Distributed::Impl::averaged_buffers() {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  for (const NamedTensor& each : binding_.float_buffers())
    result.push_back({each.name, each.tensor.detach().clone()});
  average_over_workers(result);
  for (const NamedTensor& each : binding_.integer_buffers()) {
    torch::Tensor copy = each.tensor.detach().clone();
    if (!strategy_->survives_losses()) broadcast(copy);  // rank 0 may be gone
    result.push_back({each.name, copy});
  }
  return result;
}

void Distributed::Impl::keep_ema(double decay) {
  ema_ = std::make_unique<WeightAverage>(binding_, decay, worker_.progress.steps);
}

void Distributed::Impl::update_ema() {
  if (!ema_ || !ema_->wants(worker_.progress.steps)) return;
  LentValues model;
  if (const auto apart = model_apart())
    model.put(binding_.parameter_plane(), tensor_that_holds(apart, apart->span()));
  ema_->see(worker_.progress.steps);
}

void Distributed::Impl::check_has(Weights weights) const {
  if (weights == Weights::ema && !ema_)
    throw ConfigError("Weights::ema: no average is kept; expected keep_ema(decay) before training");
}

std::vector<NamedTensor> Distributed::Impl::averaged_ema() {
  std::vector<NamedTensor> values = ema_->values();
  // Out of lockstep one worker sees two updates at once that another sees one by one.
  if (!strategy_->equal_replicas() || !strategy_->lockstep()) average_over_workers(values);
  return values;
}

std::vector<NamedTensor> Distributed::Impl::tensors_to_save(
    const std::vector<NamedTensor>& values) {
  auto tensors = tensors_of(module_);
  for (NamedTensor& each : tensors)
    for (const NamedTensor& value : values)
      if (value.name == each.name) each.tensor = value.tensor;
  return tensors;
}

LentParameters::LentParameters(Distributed::Impl& run) {
  if (!run.strategy().equal_replicas())
    values_.put(run.binding().parameter_plane(), run.averaged_parameters());
}

LentBuffers::LentBuffers(const Binding& binding, const std::vector<NamedTensor>& values) {
  for (const auto* buffers : {&binding.float_buffers(), &binding.integer_buffers()})
    for (const NamedTensor& live : *buffers)
      for (const NamedTensor& value : values)
        if (value.name == live.name) values_.put(live.tensor, value.tensor);
}

// Workers that make rounds together may come after different numbers of steps: they wait for each
// other in a flush. Those that do not have nothing to wait for.
void Distributed::Impl::evaluate(const std::function<void()>& body, Weights weights) {
  check_usable();
  if (in_step())
    throw ConfigError(
        "evaluate() came between backward() and step(): call it after step(), when the gradients "
        "have been used");
  check_has(weights);
  const PhaseScope phase(world_.impl().board(), Phase::evaluating);
  strategy_->survives_losses() ? settle() : flush();
  update_ema();
  {
    const LentParameters mean(*this);
    LentValues ema;
    if (weights == Weights::ema)
      for (const NamedTensor& value : averaged_ema())
        ema.put(*module_.named_parameters().find(value.name), value.tensor);
    const LentBuffers buffers(binding_, averaged_buffers());
    const LentMode mode(module_);
    const torch::NoGradGuard no_grad;
    body();
  }
  after_flush();
  compute_from_ = world_.impl().loop().now();
}

void Distributed::keep_ema(double decay) { impl_->keep_ema(decay); }

void Distributed::evaluate(const std::function<void()>& body, Weights weights) {
  impl_->evaluate(body, weights);
}

void Distributed::save(const std::string& path, Weights weights) {
  impl_->check_has(weights);
  const PhaseScope phase(impl_->world().impl().board(), Phase::saving);
  flush();
  auto values = impl_->averaged_buffers();
  if (weights == Weights::ema)
    for (NamedTensor& each : impl_->averaged_ema()) values.push_back(std::move(each));
  const auto tensors = impl_->tensors_to_save(values);
  impl_->world().impl().write_once([&] {
    if (is_state_dict(path))
      write_state_dict(path, impl_->module(), tensors);
    else
      write_safetensors(path, tensors);
  });
  impl_->after_flush();
}

}  // namespace skein

#include "torch/model_averages.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein {
torch::Tensor ModelAverages::parameters() {
  World& world = run_.world();
  const auto apart = world.sum_integers({run_.strategy().replicas_differ() ? 1 : 0});
  if (apart.front() == 0) return {};
  const Span own = run_.binding().arena().parameters();
  const std::shared_ptr<Memory> mean = run_.allocate(own.count);
  run_.driver().in_order([&] { copy(mean->span(), own); });
  world.impl().mean(mean->span());
  run_.driver().in_order([] {});
  return tensor_that_holds(mean, mean->span());
}

std::shared_ptr<Memory> ModelAverages::model_apart() {
  Strategy& strategy = run_.strategy();
  if (!strategy.equal_replicas() || !strategy.replicas_differ()) return nullptr;
  const std::shared_ptr<Memory> model = run_.allocate(run_.binding().arena().size());
  run_.driver().in_order([&] { strategy.read_model(model->span()); });
  run_.driver().in_order([] {});
  return model;
}

// Tensors of double precision travel as such; all others have room in a float. Those of one kind
// travel together.
void ModelAverages::average_over_workers(std::vector<NamedTensor>& tensors) {
  World& world = run_.world();
  if (world.size() == 1) return;
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    std::vector<torch::Tensor> own, flat;
    for (const NamedTensor& each : tensors)
      if ((each.tensor.scalar_type() == torch::kFloat64) == (type == torch::kFloat64))
        own.push_back(each.tensor);
    if (own.empty()) continue;
    for (const torch::Tensor& each : own) flat.push_back(each.to(torch::kCPU, type).reshape({-1}));
    torch::Tensor all = torch::cat(flat).contiguous();
    if (type == torch::kFloat32) {
      world.impl().mean({all.data_ptr<float>(), static_cast<std::size_t>(all.numel())});
    } else {
      double* const first = all.data_ptr<double>();
      std::ranges::copy(world.sum({first, first + all.numel()}), first);
      all /= static_cast<double>(std::ranges::count(world.impl().present(), true));
    }
    std::int64_t offset = 0;
    for (const torch::Tensor& each : own) {
      each.copy_(all.narrow(0, offset, each.numel()).view(each.sizes()));
      offset += each.numel();
    }
  }
}

std::vector<NamedTensor> ModelAverages::buffers() {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  for (const NamedTensor& each : run_.binding().float_buffers())
    result.push_back({each.name, each.tensor.detach().clone()});
  average_over_workers(result);
  for (const NamedTensor& each : run_.binding().integer_buffers()) {
    torch::Tensor copy = each.tensor.detach().clone();
    if (!run_.strategy().survives_losses()) run_.broadcast(copy);  // rank 0 may be gone
    result.push_back({each.name, copy});
  }
  return result;
}

// Updates are made on the loop, those too that a worker makes while it waits in flush(): so equal
// models have equal averages, whatever steps each worker has made.
void ModelAverages::keep_ema(double decay) {
  if (!resumed_from_.empty())
    throw ConfigError(fmt::format(
        "keep_ema() came after resume(), which had no average to put that of {} into: call it "
        "before resume()",
        resumed_from_));
  auto ema = std::make_unique<WeightAverage>(run_.binding(), decay, run_.worker().progress.steps);
  run_.driver().in_order([&] {
    ema_ = std::move(ema);
    run_.worker().after_update = [this] {
      const at::DisableRecordFunctionGuard unobserved;  // it is no read by the model
      const TorchOnQueue scope(run_.device().kind == Device::gpu ? current_queue() : nullptr);
      ema_->see(run_.worker().progress.steps);
    };
  });
}

void ModelAverages::check_has(Weights weights) const {
  if (weights == Weights::ema && !ema_)
    throw ConfigError("Weights::ema: no average is kept; expected keep_ema(decay) before training");
}

std::vector<NamedTensor> ModelAverages::ema_values() {
  std::vector<NamedTensor> values = ema_->values();
  if (!run_.strategy().equal_replicas()) average_over_workers(values);
  return values;
}

std::vector<NamedTensor> ModelAverages::tensors_to_save(const std::vector<NamedTensor>& values) {
  auto tensors = tensors_of(run_.module());
  for (NamedTensor& each : tensors)
    for (const NamedTensor& value : values)
      if (value.name == each.name) each.tensor = value.tensor;
  return tensors;
}

}  // namespace skein

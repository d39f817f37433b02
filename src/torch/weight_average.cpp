#include "torch/weight_average.h"

#include <fmt/format.h>

#include "skein/error.h"

namespace skein {
WeightAverage::WeightAverage(const Binding& binding, double decay, std::int64_t steps)
    : decay_(decay), seen_(steps) {
  if (!(decay >= 0 && decay < 1))
    throw ConfigError(
        fmt::format("keep_ema({}): expected a decay from 0 to below 1, such as 0.999", decay));
  // Named as they are saved; what is tied has one name. What is frozen now may be trained later.
  for (int slot = 0; slot < binding.slots(); ++slot) {
    const torch::Tensor& parameter = binding.parameter(slot);
    all_.push_back(
        {binding.names_of_slot(slot).front(), parameter, torch::empty_like(parameter.detach())});
  }
}

void WeightAverage::see(std::int64_t steps) {
  if (steps == seen_) return;
  seen_ = steps;
  const torch::NoGradGuard no_grad;
  for (Each& each : all_)
    if (taken_ == 0)
      each.mean.copy_(each.parameter);
    else
      each.mean.lerp_(each.parameter, 1 - decay_);
  ++taken_;
}

std::vector<NamedTensor> WeightAverage::values() const {
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> result;
  result.reserve(all_.size());
  for (const Each& each : all_)
    result.push_back({each.name, (taken_ == 0 ? each.parameter.detach() : each.mean).clone()});
  return result;
}

std::vector<NamedTensor> WeightAverage::state() const {
  std::vector<NamedTensor> result{{kTaken, torch::tensor({taken_}, torch::kInt64)}};
  if (taken_ == 0) return result;
  for (const Each& each : all_) result.push_back({kPrefix + each.name, each.mean});
  return result;
}

bool WeightAverage::restore(const SafeTensors& file, std::int64_t steps) {
  const torch::Tensor* const taken = file.find(kTaken);
  if (!taken || taken->scalar_type() != torch::kInt64 || taken->numel() != 1) return false;
  const auto count = taken->item<std::int64_t>();
  if (count < 0) return false;
  if (count > 0)
    for (const Each& each : all_) {
      const torch::Tensor* const found = file.find(kPrefix + each.name);
      if (!found && !each.parameter.requires_grad()) continue;
      if (!found || found->sizes() != each.mean.sizes() ||
          found->scalar_type() != each.mean.scalar_type())
        return false;
    }
  const torch::NoGradGuard no_grad;
  if (count > 0)
    for (Each& each : all_) {
      const torch::Tensor* const found = file.find(kPrefix + each.name);
      each.mean.copy_(found ? *found : each.parameter.detach());
    }
  taken_ = count;
  seen_ = steps;
  return true;
}

}  // namespace skein

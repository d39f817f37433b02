#include "skein/torch.h"

#include <algorithm>

#include "optimize/adamw.h"
#include "optimize/sgd.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"
#include "torch/torch_optimizer.h"

namespace skein {
namespace {

std::vector<GroupRule> groups_of(const Binding& binding, const OptimizerSpec& spec) {
  std::vector<GroupRule> groups;
  if (!spec.no_decay_1d_) return groups;
  for (int slot = 0; slot < binding.slots(); ++slot)
    if (binding.parameter(slot).dim() <= 1)
      groups.push_back({binding.arena().slots()[static_cast<std::size_t>(slot)].range, 0});
  return groups;
}

std::unique_ptr<Optimizer> make_optimizer(const Binding& binding, const OptimizerSpec& spec) {
  const std::size_t size = binding.arena().size();
  if (spec.kind == OptimizerSpec::Kind::sgd)
    return std::make_unique<Sgd>(size,
                                 SgdOptions{spec.momentum_, spec.weight_decay_, spec.nesterov_},
                                 groups_of(binding, spec));
  return std::make_unique<Adamw>(
      size, AdamwOptions{spec.beta1, spec.beta2, spec.epsilon_, spec.weight_decay_},
      groups_of(binding, spec));
}

}  // namespace

Distributed::Distributed(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Distributed::Distributed(Distributed&&) noexcept = default;
Distributed& Distributed::operator=(Distributed&&) noexcept = default;
Distributed::~Distributed() = default;

void Distributed::step(std::int64_t samples) { impl_->step(samples); }
void Distributed::expect(std::int64_t samples) { impl_->expect(samples); }
void Distributed::accumulate(int backward_passes) { impl_->accumulate(backward_passes); }
void Distributed::flush() { impl_->flush(); }

void Distributed::save(const std::string& path) {
  flush();
  const auto tensors = impl_->tensors_to_save();
  World& world = impl_->world();
  if (world.rank() == world.impl().leader()) write_safetensors(path, tensors);
  world.barrier();
  impl_->after_flush();
}

void Distributed::load(const std::string& path) {
  flush();  // so that what is read takes the place of all that a strategy holds
  load_into_module(impl_->module(), read_safetensors(path));
}

std::int64_t Distributed::samples() const { return impl_->worker().progress.samples; }
std::int64_t Distributed::steps() const { return impl_->worker().progress.steps; }
double Distributed::learning_rate() const { return impl_->worker().learning_rate(); }

Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy) {
  const LearningRate rate(optimizer.learning_rate, parse_schedule(optimizer.schedule_),
                          optimizer.total_samples_);
  return Distributed(std::make_unique<Distributed::Impl>(
      world, module,
      [optimizer](const Binding& binding) { return make_optimizer(binding, optimizer); }, rate,
      optimizer.clip_, strategy));
}

Distributed distribute(
    World& world, torch::nn::Module& module,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>& make,
    double learning_rate, const StrategySpec& strategy) {
  return Distributed(std::make_unique<Distributed::Impl>(
      world, module,
      [make](const Binding& binding) {
        return std::make_unique<TorchOptimizer>(binding.arena().size(), make);
      },
      LearningRate(learning_rate, Schedule{}), 0, strategy));
}

}  // namespace skein

#include "skein/torch.h"

#include <fmt/format.h>

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

std::unique_ptr<Optimizer> make_optimizer(const Binding& binding, const OptimizerSpec& spec,
                                          const Allocate& allocate) {
  const std::size_t size = binding.arena().size();
  if (spec.kind == OptimizerSpec::Kind::sgd)
    return std::make_unique<Sgd>(size,
                                 SgdOptions{spec.momentum_, spec.weight_decay_, spec.nesterov_},
                                 groups_of(binding, spec), allocate);
  return std::make_unique<Adamw>(
      size, AdamwOptions{spec.beta1, spec.beta2, spec.epsilon_, spec.weight_decay_},
      groups_of(binding, spec), allocate);
}

Facts facts_of(const OptimizerSpec& spec) {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  Facts facts{{"optimizer", spec.kind == OptimizerSpec::Kind::sgd ? "sgd" : "adamw"},
              {"learning rate", number(spec.learning_rate)},
              {"weight decay", number(spec.weight_decay_)},
              {"no_decay_1d", number(spec.no_decay_1d_)},
              {"clip", number(spec.clip_)},
              {"schedule", spec.schedule_},
              {"total samples of the schedule", number(spec.total_samples_)}};
  if (spec.kind == OptimizerSpec::Kind::sgd) {
    facts.push_back({"momentum", number(spec.momentum_)});
    facts.push_back({"nesterov", number(spec.nesterov_)});
  } else {
    facts.push_back({"betas", fmt::format("{}, {}", spec.beta1, spec.beta2)});
    facts.push_back({"epsilon", number(spec.epsilon_)});
  }
  return facts;
}

}  // namespace

// What can fail on one worker alone happens before the workers compare notes: nobody is left
// waiting, and the world can be used for another attempt.
Distributed Distributed::make(World& world, const MakeImpl& make_impl) {
  // Before anything can fail: ranks must take the same channels for their next attempt, too.
  const int channels = world.impl().fabric().allot_channels();
  Facts facts{{"version of Skein", SKEIN_VERSION}};
  std::unique_ptr<Impl> impl;
  std::exception_ptr error;
  std::string failure;
  try {
    impl = make_impl(facts, channels);
    const Facts more = impl->facts();
    facts.insert(facts.end(), more.begin(), more.end());
  } catch (const std::exception& caught) {
    error = std::current_exception();
    failure = caught.what();
    if (failure.empty()) failure = "without a reason";
  }
  try {
    agree(world, facts, failure);
  } catch (...) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  impl->start();
  return Distributed(std::move(impl));
}

Distributed::Distributed(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Distributed::Distributed(Distributed&&) noexcept = default;
Distributed& Distributed::operator=(Distributed&&) noexcept = default;
Distributed::~Distributed() = default;

void Distributed::step(std::int64_t samples) { impl_->step(samples); }
void Distributed::expect(std::int64_t samples) { impl_->expect(samples); }
void Distributed::accumulate(int backward_passes) { impl_->accumulate(backward_passes); }
void Distributed::before_update(std::function<void(AveragedGradients&)> change) {
  impl_->before_update(std::move(change));
}
bool Distributed::done(std::int64_t total_samples) { return impl_->done(total_samples); }
void Distributed::flush() { impl_->flush(); }

void Distributed::save(const std::string& path) {
  const PhaseScope phase(impl_->world().impl().board(), Phase::saving);
  flush();
  const auto tensors = impl_->tensors_to_save();
  impl_->world().impl().write_once([&] { write_safetensors(path, tensors); });
  impl_->after_flush();
}

void Distributed::load(const std::string& path) {
  const PhaseScope phase(impl_->world().impl().board(), Phase::loading);
  flush();  // so that what is read takes the place of all that a strategy holds
  load_into_module(impl_->module(), read_safetensors(path));
}

std::int64_t Distributed::samples() const { return impl_->worker().progress.samples; }
std::int64_t Distributed::steps() const { return impl_->worker().progress.steps; }
double Distributed::learning_rate() const { return impl_->worker().learning_rate(); }

Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy) {
  return Distributed::make(world, [&](Facts& facts, int channels) {
    const LearningRate rate(optimizer.learning_rate, parse_schedule(optimizer.schedule_),
                            optimizer.total_samples_);
    const Facts own = facts_of(optimizer);
    facts.insert(facts.end(), own.begin(), own.end());
    return std::make_unique<Distributed::Impl>(
        world, module,
        [optimizer](const Binding& binding, const Allocate& allocate) {
          return make_optimizer(binding, optimizer, allocate);
        },
        rate, optimizer.clip_, strategy, channels);
  });
}

Distributed distribute(
    World& world, torch::nn::Module& module,
    const std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>& make,
    double learning_rate, const StrategySpec& strategy) {
  return Distributed::make(world, [&](Facts& facts, int channels) {
    auto impl = std::make_unique<Distributed::Impl>(
        world, module,
        [make](const Binding& binding, const Allocate& allocate) {
          return std::make_unique<TorchOptimizer>(binding.arena().size(), make, allocate);
        },
        LearningRate(learning_rate, Schedule{}), 0, strategy, channels);
    const auto& optimizer = dynamic_cast<const TorchOptimizer&>(impl->optimizer());
    facts.push_back({"optimizer", optimizer.description()});
    facts.push_back({"learning rate", fmt::format("{}", learning_rate)});
    return impl;
  });
}

}  // namespace skein

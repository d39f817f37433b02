#include "skein/torch.h"

#include "observe/json_text.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein {
// What can fail on one worker alone happens before the workers compare notes: nobody is left
// waiting, and the world can be used for another attempt.
Distributed Distributed::make(World& world, torch::nn::Module& module,
                              const OptimizerSpec& optimizer, const StrategySpec& strategy) {
  // Before anything can fail: ranks must take the same channels for their next attempt, too.
  const int channels = world.impl().fabric().allot_channels();
  const Workers::Calls::Scope call(world.calls(), "skein::distribute()");
  Facts facts{{"version of Skein", SKEIN_VERSION}};
  std::unique_ptr<Impl> impl;
  std::exception_ptr error;
  std::string failure;
  try {
    impl = std::make_unique<Impl>(world, module, optimizer, strategy, channels);
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

void Distributed::End::operator()(Impl* impl) const noexcept {
  if (impl->here()) delete impl;
}

Distributed::Distributed(std::unique_ptr<Impl> impl) : impl_(impl.release()) {}
Distributed::Distributed(Distributed&&) noexcept = default;
Distributed& Distributed::operator=(Distributed&&) noexcept = default;
Distributed::~Distributed() = default;

void Distributed::step(std::int64_t samples) { impl_->step(samples); }
void Distributed::step() { impl_->step(impl_->data().samples_handed_out()); }
void Distributed::on_record(std::int64_t every, std::function<void(const Record&)> look) {
  impl_->recorder().start(every, std::move(look));
}
void Distributed::report_loss(const torch::Tensor& loss) { impl_->recorder().add_loss(loss); }
void Distributed::report_loss(double loss) { impl_->recorder().add_loss(loss); }
void Distributed::report(const std::string& name, double value) {
  impl_->recorder().add(name, value);
}
bool Distributed::stopping() { return impl_->stopping(); }
void Distributed::stop() { impl_->worker().wants_to_stop = true; }
void Distributed::expect(std::int64_t samples) { impl_->expect(samples); }
void Distributed::accumulate(int backward_passes) { impl_->accumulate(backward_passes); }
void Distributed::before_update(std::function<void(AveragedGradients&)> change) {
  impl_->before_update(std::move(change));
}
bool Distributed::done(std::int64_t total_samples) { return impl_->done(total_samples); }
void Distributed::flush() {
  if (impl_->usable() && impl_->in_step())
    throw ConfigError(
        "flush(), save() or load() came between backward() and step(): call it after step(), when "
        "the gradients have been used");
  const Workers::Calls::Scope call(impl_->calls(), "run.flush()");
  impl_->flush();
}

void Distributed::load(const std::string& path) {
  const Workers::Calls::Scope call(impl_->calls(), "run.load()");
  const PhaseScope phase(impl_->world().impl().board(), Phase::loading);
  flush();  // so that what is read takes the place of all that a strategy holds
  SafeTensors file;
  std::exception_ptr failed;
  try {
    file = read_safetensors(path);
    check_fits(impl_->module(), file);
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  impl_->world().impl().agree_on_success("reading the file", failed);
  load_into_module(impl_->module(), file);
}

std::int64_t Distributed::samples() const { return impl_->worker().progress.samples; }
std::int64_t Distributed::steps() const { return impl_->worker().progress.steps; }
Totals Distributed::totals() const {
  Totals totals{.waiting = impl_->time().waiting(),
                .updating = impl_->time().updating(),
                .bytes_sent = impl_->world().impl().fabric().bytes_sent(),
                .reordered = impl_->binding().reordered()};
  for (const Slot& slot : impl_->binding().arena().slots())
    totals.parameters += static_cast<std::int64_t>(slot.range.count);
  return totals;
}
RunTraits Distributed::traits() const {
  const Strategy& strategy = impl_->strategy();
  return {strategy.lockstep(), strategy.equal_replicas(), strategy.survives_losses()};
}
StrategyReport Distributed::strategy_report() {
  StrategyReport report;
  impl_->look_at([&](const Strategy& strategy) {
    report = {text_of(strategy.figures()), strategy.summary()};
  });
  return report;
}
std::vector<std::int64_t> Distributed::shares(std::int64_t samples) {
  if (!impl_->strategy().lockstep())
    throw ConfigError("shares(): under this strategy each worker has batches of its own");
  return impl_->strategy().split(samples);
}
double Distributed::learning_rate() const { return impl_->settings().learning_rate(); }
void Distributed::set_learning_rate(double rate) {
  impl_->check_usable();
  impl_->settings().set_learning_rate(rate);
}
void Distributed::freeze(const WhichParameters& which) {
  impl_->check_between_steps("freeze()");
  impl_->settings().set_frozen(which, true);
}
void Distributed::unfreeze(const WhichParameters& which) {
  impl_->check_between_steps("unfreeze()");
  impl_->settings().set_frozen(which, false);
}
World& Distributed::world() { return impl_->world(); }
torch::optim::Optimizer& Distributed::optimizer() { return impl_->settings().view(); }

Distributed distribute(World& world, torch::nn::Module& module, const OptimizerSpec& optimizer,
                       const StrategySpec& strategy) {
  return Distributed::make(world, module, optimizer, strategy);
}

Distributed distribute(World& world, torch::nn::Module& module, const MakeTorchOptimizer& make,
                       double learning_rate, const StrategySpec& strategy) {
  return Distributed::make(world, module, torch_optimizer(make, learning_rate), strategy);
}

}  // namespace skein

#include "torch/distributed_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "kernels/kernels.h"
#include "strategy/registry.h"
#include "torch/checkpoints.h"
#include "torch/make_optimizer.h"
#include "torch/safetensors.h"

namespace skein {
namespace {

torch::nn::Module& check_not_shared(torch::nn::Module& module) {
  for (const auto& each : module.named_parameters())
    if (has_gradient_hook(each.value()))
      throw ConfigError(fmt::format(
          "parameter '{}' is trained by another Distributed already; expected that one to go first",
          each.key()));
  return module;
}

// Where the module computes: where its first parameter is that is trained. What cannot be trained
// is Binding's to say.
Device use_device_of(const torch::nn::Module& module, World& world) {
  for (const torch::Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad()) continue;
    const Device device = device_of(parameter.device());
    world.impl().use_device(device);
    return device;
  }
  return Device::cpu;
}

}  // namespace

Distributed::Impl::Impl(World& world, torch::nn::Module& module, const OptimizerSpec& recipe,
                        const StrategySpec& strategy, Channel channels)
    : world_(world.share()),
      module_(check_not_shared(module)),
      recipe_(recipe),
      stream_(use_device_of(module, world)),
      binding_(module, [this](std::size_t count) { return allocate(count); }),
      groups_(binding_, recipe),
      optimizer_(new_optimizer()),
      worker_(fabric(), binding_.arena(), *optimizer_,
              LearningRate(recipe.learning_rate, parse_schedule(recipe.schedule_),
                           recipe.total_samples_),
              time_, world.impl().options().patience, recipe.clip_, strategy.seed_, channels),
      settings_(groups_, binding_, recipe, *optimizer_, worker_, courier()),
      strategy_(make_strategy(strategy.name, strategy.options, worker_)),
      before_update_(binding_, worker_, courier(), stream_),
      program_(binding_, stream_, courier(), worker_, [this](int slot) { driver_.touched(slot); }),
      driver_(worker_, *strategy_, time_, program_),
      spec_(strategy) {
  install_hooks();
}

Facts Distributed::Impl::facts() const {
  Facts facts{{"device", stream_.on_device() ? "cuda" : "cpu"},
              {"strategy", spec_.name},
              {"seed of the strategy", std::to_string(spec_.seed_)}};
  for (const auto& [key, value] : spec_.options) facts.push_back({"strategy option " + key, value});
  for (const Facts& more : {facts_of(recipe_, *optimizer_), groups_.facts(), facts_of(module_)})
    facts.insert(facts.end(), more.begin(), more.end());
  return facts;
}

void Distributed::Impl::start() {
  settings_.start();
  stream_.on_device() ? world_.impl().meet_on_device() : world_.impl().do_without_device();
  start_from_rank_0();
  if (strategy_->survives_losses()) world_.impl().tolerate_losses();
  calls().advise(
      strategy_->lockstep()
          ? "make it after the same step on all workers, or at a mark in samples "
            "(run.every(), run.save_every())"
          : fmt::format("under {} workers make different numbers of steps: make it at a mark in "
                        "samples (run.every(), run.save_every()) or after run.flush()",
                        spec_.name));
  if (strategy_->wants_order_of_reads()) read_order_ = std::make_unique<ReadOrder>(binding_);
  courier().with_loop([this] {
    background_ = ScopedJob(world_.impl().loop().spawn_background(strategy_->background()));
  });
  driver_.start_computing();
}

// Anew when slots have new numbers.
void Distributed::Impl::install_hooks() {
  hooks_.reset();
  hooks_ = std::make_unique<GradientHooks>(binding_, [this](int slot) { on_gradient(slot); });
  if (strategy_->waits_for_reads())
    reads_ = std::make_unique<ReadHook>(binding_, [this](int slot) { on_read(slot); });
}

Distributed::Impl::~Impl() {
  recorder_.stop();  // what it shows records to may be gone
  flush_last_step();
  reads_.reset();
  // The strategy's jobs refer to what is about to go. Others of the world may have jobs of their
  // own.
  courier().with_loop([this] {
    background_ = ScopedJob();
    strategy_.reset();
  });
}

// The module keeps the last update, which may be on its way still. After a failure nobody waits,
// nor after a flush: others may have much to do before they come to their ends.
void Distributed::Impl::flush_last_step() noexcept {
  if (std::uncaught_exceptions() > 0 || !usable() || at_rest_) return;
  const Workers::Calls::Scope call(calls(), "the end of a Distributed");
  try {
    flush();
  } catch (...) {  // a lost peer: there is no newer model than this
  }
}

void Distributed::Impl::start_from_rank_0() {
  const torch::NoGradGuard no_grad;
  wait(driver_.between_steps(fabric().broadcast(
      World::Impl::kOwnChannel, binding_.arena().parameters(), 0, world_.impl().limit())));
  for (const auto* tensors :
       {&binding_.float_buffers(), &binding_.integer_buffers(), &binding_.frozen_parameters()})
    for (const NamedTensor& each : *tensors) broadcast(each.tensor);
}

void Distributed::Impl::broadcast(const torch::Tensor& tensor) {
  torch::Tensor copy = tensor.detach().to(torch::kCPU).contiguous().clone();
  const Span bytes{copy.data_ptr(), copy.nbytes(), Device::cpu, Type::byte};
  calls().wait("a broadcast of rank 0's values",
               fabric().broadcast(World::Impl::kOwnChannel, bytes, 0, world_.impl().limit()));
  tensor.detach().copy_(copy);
}

void Distributed::Impl::expect(std::int64_t samples) {
  if (samples < 0)
    throw ConfigError(fmt::format("expect({}): expected 0 samples or more", samples));
  if (driver_.begun())
    throw ConfigError(
        "expect() came after the first gradient of its step: call it before backward()");
  driver_.expect(samples);
}

// Says, when another worker is waited for in vain, what that one is in instead.
void Distributed::Impl::wait(Task<> task, bool may_ask) {
  task = calls().inside("run.step()", std::move(task));
  const auto abandoned = [this] {
    broken_ =
        "an earlier step failed in before_update() or while it waited: make a new Distributed";
  };
  try {
    may_ask ? before_update_.wait(std::move(task), abandoned) : courier().wait(std::move(task));
  } catch (const TooLate& late) {
    throw calls().explain("run.step()", late);
  }
  driver_.follow();
}

// In forward or backward, where nothing asks the user.
void Distributed::Impl::wait_in_step(const char* what, Task<> task) {
  const Duration before = driver_.waited();
  wait(std::move(task), false);
  if (after_wait) after_wait(what, driver_.waited() - before);
}

void Distributed::Impl::accumulate(int backward_passes) {
  if (backward_passes < 1)
    throw ConfigError(fmt::format("accumulate({}): expected 1 or more", backward_passes));
  if (driver_.begun())
    throw ConfigError(
        "accumulate() came in the middle of a step: call it before the first backward()");
  driver_.accumulate(backward_passes);
}

bool Distributed::Impl::done(std::int64_t total_samples) {
  worker_.budget = total_samples;
  return worker_.progress.samples >= total_samples;
}

bool Distributed::Impl::stopping() {
  stop_on_signals();
  return worker_.all_stop;
}

void Distributed::Impl::note_step() {
  data_.step_begins();
  if (stop_requested()) worker_.wants_to_stop = true;
}

void Distributed::Impl::begin_step_once(std::int64_t samples) {
  if (driver_.begun()) return;
  at_rest_ = false;
  if (read_order_) read_order_->stop();
  wait_in_step("begin", driver_.begin(samples));
}

void Distributed::Impl::on_gradient(int slot) try {
  if (!here()) return;
  if (before_gradient) before_gradient(slot);
  begin_step_once();
  driver_.gradient(slot);
} catch (...) {
  if (!hook_error_) hook_error_ = std::current_exception();
  throw;
}

// From a step on, the first operator that touches a parameter or its gradient waits until the
// parameter is that step's and the gradient is cleared.
void Distributed::Impl::watch_reads() {
  if (!reads_ || !driver_.any_unread()) return;
  const std::lock_guard lock(reading_);
  reads_->activate();
}

void Distributed::Impl::on_read(int slot) {
  if (!here()) return;
  const std::lock_guard lock(reading_);
  const int bucket = driver_.unread(slot);
  if (bucket < 0) return;
  if (before_read) before_read(slot);
  wait_in_step("read", driver_.need(bucket));
  if (!driver_.any_unread()) reads_->deactivate();
}

std::exception_ptr Distributed::Impl::take_error() {
  const std::exception_ptr of_read = reads_ ? reads_->take_error() : nullptr;
  const std::exception_ptr of_gradient = std::exchange(hook_error_, nullptr);
  return of_read ? of_read : of_gradient;
}

// Nothing is on its way any more.
void Distributed::Impl::all_read() {
  if (!reads_) return;
  const std::lock_guard lock(reading_);
  reads_->deactivate();
}

// The strategy was stopped half-way: there is nothing left to flush, and the others may not have
// been stopped at the same place.
void Distributed::Impl::stop_for(const ConfigError& error) {
  if (broken_.empty()) broken_ = error.what();
}

void Distributed::Impl::step(std::int64_t samples) {
  if (samples < 0) throw ConfigError(fmt::format("step({}): expected 0 samples or more", samples));
  check_usable();
  check_not_evaluating("step()");
  if (periodic_.running())
    throw ConfigError(
        "step() in a function of every(): expected it to return first, and steps in the loop");
  // Torch lets forward go on after a read that failed: its result is worthless.
  hook_error_ = nullptr;
  if (const auto error = take_error()) std::rethrow_exception(error);
  if (samples > 0) check_has_gradients(samples);
  fabric().progressed();
  note_step();
  begin_step_once(samples);
  program_.computing_ends();
  settings_.adopt_rates();
  check_touched_gradients();
  all_read();
  binding_.rebind_parameters();
  binding_.rebind_gradients();
  Board& board = world_.impl().board();
  board.set_phase(Phase::waiting);
  try {
    wait(driver_.end(samples));
    world_.impl().check_company();
    if (read_order_ && strategy_->all_made_the_last_step()) reorder_once();
  } catch (const ConfigError& error) {
    stop_for(error);
    throw;
  }
  watch_reads();
  driver_.start_computing();
  program_.stay_near();
  program_.computing_begins();
  board.set_step(worker_.progress.steps, worker_.progress.samples);
  board.set_phase(Phase::forward);
  recorder_.step_over();
  if (!periodic_.due()) return;
  periodic_.come_together(false);
  driver_.start_computing();
}

void Distributed::Impl::flush() {
  check_usable();
  check_not_evaluating("flush(), save() or load()");
  periodic_.awaited() ? periodic_.come_together(true) : flush_strategy();
}

void Distributed::Impl::flush_strategy() {
  const PhaseScope phase(world_.impl().board(), Phase::flushing);
  try {
    wait(driver_.flush());
  } catch (const ConfigError& error) {
    stop_for(error);
    throw;
  }
  at_rest_ = true;
  all_read();
  recorder_.deliver_all();
  driver_.start_computing();
  replicas_.check_module();
}

void Distributed::Impl::settle() {
  wait(driver_.settle());
  all_read();
  recorder_.deliver_all();
}

void Distributed::Impl::go_on() {
  after_flush();
  at_rest_ = false;
}

// What forward reads first should arrive first. The order may depend on the data: rank 0's counts.
void Distributed::Impl::reorder_once() {
  std::vector<int> order = std::exchange(read_order_, nullptr)->slots();
  const Span shared = message_of(std::as_bytes(std::span(order)));
  calls().wait("the order of parameters",
               fabric().broadcast(World::Impl::kOwnChannel, shared, 0, world_.impl().limit()));
  if (std::is_sorted(order.begin(), order.end())) return;
  reorder(order);
  after_flush();
}

void Distributed::Impl::reorder(const std::vector<int>& order) {
  wait(driver_.flush());
  all_read();
  const std::vector<Slot> before = binding_.arena().slots();
  const BucketPlan plan = strategy_->plan();
  std::unique_ptr<Optimizer> old;
  driver_.in_order([&] {
    has_loop_ = true;
    binding_.reorder(order);
    has_loop_ = false;
    if (const Mark moved = stream_.record()) world_.impl().loop().queue()->wait(moved);
    auto optimizer = new_optimizer();
    worker_.move_to(binding_.arena(), *optimizer);
    worker_.set_groups(groups_.rules(binding_));
    old = std::exchange(optimizer_, std::move(optimizer));
    strategy_->arena_changed();
  });
  // Before the first update nobody has any state.
  if (worker_.progress.steps > 0) {
    std::vector<Placed> placed;
    for (std::size_t i = 0; i < order.size(); ++i)
      placed.push_back({before[static_cast<std::size_t>(order[i])].range,
                        binding_.arena().slots()[i].range.offset});
    std::ranges::sort(placed, {}, [](const Placed& each) { return each.before.offset; });
    wait(driver_.between_steps(strategy_->take_over_state(*old, plan, placed)));
  }
  install_hooks();
  program_.arena_changed();
  if (read_order_) read_order_ = std::make_unique<ReadOrder>(binding_);
  if (after_reorder) after_reorder();
}

void Distributed::Impl::stream_optimizer_state(int to, const TakeState& take) {
  wait(driver_.between_steps(strategy_->stream_state(to, take)));
}

Checkpoints& Distributed::Impl::checkpoints() {
  if (!checkpoints_) checkpoints_ = std::make_unique<Checkpoints>(*this);
  return *checkpoints_;
}

}  // namespace skein

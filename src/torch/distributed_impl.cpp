#include "torch/distributed_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <numeric>
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
      view_(groups_, *torch_options(recipe, *optimizer_), recipe.learning_rate),
      rates_(view_.rates()),
      first_rates_(rates_),
      first_frozen_(groups_.frozen()),
      worker_(fabric(), binding_.arena(), *optimizer_,
              LearningRate(recipe.learning_rate, parse_schedule(recipe.schedule_),
                           recipe.total_samples_),
              trace_, world.impl().options().patience, recipe.clip_, strategy.seed_, channels),
      strategy_(make_strategy(strategy.name, strategy.options, worker_)),
      registered_(static_cast<std::size_t>(binding_.slots())),
      source_(binding_, worker_, courier(), stream_),
      user_(world.impl().loop()),
      gradients_(binding_),
      spec_(strategy) {
  install_hooks();
  std::iota(registered_.begin(), registered_.end(), 0);
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
  groups_.start();
  apply_groups();
  stream_.on_device() ? world_.impl().meet_on_device() : world_.impl().do_without_device();
  start_from_rank_0();
  if (strategy_->survives_losses()) world_.impl().tolerate_losses();
  if (strategy_->wants_order_of_reads()) read_order_ = std::make_unique<ReadOrder>(binding_);
  courier().with_loop([this] {
    background_ = ScopedJob(world_.impl().loop().spawn_background(strategy_->background()));
  });
  compute_from_ = world_.impl().loop().now();
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
  if (std::uncaught_exceptions() > 0 || !broken_.empty() || at_rest_) return;
  try {
    flush();
  } catch (...) {  // a lost peer: there is no newer model than this
  }
}

void Distributed::Impl::start_from_rank_0() {
  const torch::NoGradGuard no_grad;
  wait_in_order(fabric().broadcast(World::Impl::kOwnChannel, binding_.arena().parameters(), 0,
                                   world_.impl().limit()));
  for (const auto* tensors :
       {&binding_.float_buffers(), &binding_.integer_buffers(), &binding_.frozen_parameters()})
    for (const NamedTensor& each : *tensors) broadcast(each.tensor);
}

// Any dtype: the bytes travel.
void Distributed::Impl::broadcast(const torch::Tensor& tensor) {
  torch::Tensor copy = tensor.detach().to(torch::kCPU).contiguous().clone();
  const Span bytes{copy.data_ptr(), copy.nbytes(), Device::cpu, Type::byte};
  courier().wait(fabric().broadcast(World::Impl::kOwnChannel, bytes, 0, world_.impl().limit()));
  tensor.detach().copy_(copy);
}

void Distributed::Impl::expect(std::int64_t samples) {
  if (samples < 0)
    throw ConfigError(fmt::format("expect({}): expected 0 samples or more", samples));
  if (begun_)
    throw ConfigError(
        "expect() came after the first gradient of its step: call it before backward()");
  after_flush();
  expected_ = samples;
  if (!strategy_->lockstep()) {
    courier().wait(in_order(strategy_->expect(samples)));
    follow();
  }
  compute_from_ = world_.impl().loop().now();
}

void Distributed::Impl::accumulate(int backward_passes) {
  if (backward_passes < 1)
    throw ConfigError(fmt::format("accumulate({}): expected 1 or more", backward_passes));
  if (begun_)
    throw ConfigError(
        "accumulate() came in the middle of a step: call it before the first backward()");
  passes_ = backward_passes;
}

bool Distributed::Impl::done(std::int64_t total_samples) {
  worker_.budget = total_samples;
  return worker_.progress.samples >= total_samples;
}

void Distributed::Impl::begin_step_once() {
  if (begun_) return;
  begun_ = true;
  at_rest_ = false;
  if (read_order_) read_order_->stop();
  courier().wait(in_order(strategy_->begin_step(expected_)));
  follow();
  for (const int frozen : gradients_.begin(strategy_->plan(), passes_,
                                           strategy_->sends_in_backward(), expected_ != kUnknown))
    courier().post([this, frozen] { strategy_->gradient_ready(frozen); });
}

void Distributed::Impl::on_gradient(int slot) {
  if (before_gradient) before_gradient(slot);
  begin_step_once();
  const int bucket = gradients_.add(slot);
  if (bucket < 0) return;
  fabric().progressed();
  courier().post([this, bucket, computed = stream_.record()] {
    if (computed) world_.impl().loop().queue()->wait(computed);
    if (device_trace_)
      device_trace_->begin(Lane::device_sums, stream_of(*world_.impl().loop().queue()));
    strategy_->gradient_ready(bucket);
  });
}

// From a step on, the first operator that touches a parameter or its gradient waits until the
// parameter is that step's and the gradient is cleared.
void Distributed::Impl::watch_reads() {
  if (!reads_) return;
  const std::lock_guard lock(reading_);
  unread_.assign(static_cast<std::size_t>(strategy_->plan().count()), true);
  unread_count_ = strategy_->plan().count();
  reads_->activate();
}

void Distributed::Impl::on_read(int slot) {
  const std::lock_guard lock(reading_);
  if (unread_count_ == 0) return;  // another thread has read the last meanwhile
  const int bucket = strategy_->plan().bucket_of(slot);
  if (!unread_[static_cast<std::size_t>(bucket)]) return;
  if (before_read) before_read(slot);
  const Time begin = world_.impl().loop().now();
  courier().wait(need(bucket));
  follow();
  const Time end = world_.impl().loop().now();
  if (after_read) after_read(end - begin);
  exposed_ += end - begin;
  read_wait_ += end - begin;
  trace_.span(Lane::wait, "read", begin, end);
  unread_[static_cast<std::size_t>(bucket)] = false;
  if (--unread_count_ == 0) reads_->deactivate();
}

// Nothing is on its way any more.
void Distributed::Impl::all_read() {
  if (!reads_) return;
  const std::lock_guard lock(reading_);
  unread_count_ = 0;
  reads_->deactivate();
}

// Updates may go on when this has ended, on the courier's thread: so they are counted here, on the
// loop.
Task<> Distributed::Impl::end_step(std::int64_t samples) {
  const Duration before = worker_.meters.update;
  void* const queue = device_trace_ ? stream_of(*world_.impl().loop().queue()) : nullptr;
  if (device_trace_) device_trace_->begin(Lane::device_sums, queue);
  co_await strategy_->end_step(samples);
  updated_ += worker_.meters.update - before;
  if (!device_trace_) co_return;
  device_trace_->end(Lane::device_sums, queue,
                     fmt::format("sums and update of step {}", worker_.progress.steps));
  device_trace_->report();
}

void Distributed::Impl::step(std::int64_t samples) {
  if (samples < 0) throw ConfigError(fmt::format("step({}): expected 0 samples or more", samples));
  check_usable();
  // Torch lets forward go on after a read that failed: its result is worthless.
  if (reads_)
    if (const auto error = reads_->take_error()) std::rethrow_exception(error);
  update_ema();  // all that forward has read is there
  const Duration waited = std::exchange(read_wait_, Duration(0));
  worker_.meters.computed(world_.impl().loop().now() - compute_from_ - waited, samples);
  fabric().progressed();
  if (!begun_) expected_ = samples;
  note_step();
  begin_step_once();
  trace_compute_end();
  adopt_rates();
  check_touched_gradients();
  all_read();
  binding_.rebind_parameters();
  binding_.rebind_gradients();
  Board& board = world_.impl().board();
  board.set_phase(Phase::waiting);
  const Loop& loop = world_.impl().loop();
  const Time begin = loop.now();
  const Duration updated = updated_;
  wait(in_order(end_step(samples)));
  // Where forward waits for each bucket by itself it need not wait for all.
  if (strategy_->waits_for_reads()) handed_over_ = nullptr;
  follow();
  world_.impl().check_company();
  const Time end = loop.now();
  exposed_ += end - begin - (updated_ - updated);
  trace_.span(Lane::wait, "step", begin, end);
  if (read_order_ && strategy_->all_made_the_last_step()) reorder_once();
  watch_reads();
  begun_ = false;
  expected_ = samples;
  compute_from_ = loop.now();
  stay_near();
  trace_compute_begin();
  board.set_step(worker_.progress.steps, worker_.progress.samples);
  board.set_phase(Phase::forward);
  recorder_.step_over();
}

void Distributed::Impl::flush() {
  check_usable();
  const PhaseScope phase(world_.impl().board(), Phase::flushing);
  wait_in_order(strategy_->flush());
  flushed_ = at_rest_ = true;
  all_read();
  recorder_.deliver_all();
  update_ema();
}

// Where the strategy keeps the model beside what forward reads.
std::shared_ptr<Memory> Distributed::Impl::model_apart() {
  if (!strategy_->equal_replicas() || !strategy_->replicas_differ()) return nullptr;
  const std::shared_ptr<Memory> model = allocate(binding_.arena().size());
  hand_over([&] { strategy_->read_model(model->span()); });
  hand_over([] {});
  return model;
}

void Distributed::Impl::settle() {
  wait_in_order(strategy_->settle());
  all_read();
  flushed_ = true;
}

torch::Tensor Distributed::Impl::averaged_parameters() {
  const Span own = binding_.arena().parameters();
  const std::shared_ptr<Memory> mean = allocate(own.count);
  hand_over([&] { copy(mean->span(), own); });
  // Where nobody has made a step since all came together there is nothing to average.
  const auto apart = world_.sum_integers({strategy_->replicas_differ() ? 1 : 0});
  if (apart.front() > 0) world_.impl().mean(mean->span());
  hand_over([] {});
  return tensor_that_holds(mean, mean->span());
}

void Distributed::Impl::after_flush() {
  if (!std::exchange(flushed_, false)) return;
  hand_over([this] { strategy_->after_flush(); });
}

// What forward reads first should arrive first. The order may depend on the data: rank 0's counts.
void Distributed::Impl::reorder_once() {
  std::vector<int> order = std::exchange(read_order_, nullptr)->slots();
  const Span shared = message_of(std::as_bytes(std::span(order)));
  courier().wait(fabric().broadcast(World::Impl::kOwnChannel, shared, 0, world_.impl().limit()));
  if (std::is_sorted(order.begin(), order.end())) return;
  reorder(order);
  after_flush();
}

void Distributed::Impl::reorder(const std::vector<int>& order) {
  OptimizerState state = optimizer_state();
  const std::vector<Slot> before = binding_.arena().slots();
  all_read();
  hand_over([&] {
    has_loop_ = true;
    binding_.reorder(order);
    has_loop_ = false;
    if (const Mark moved = stream_.record()) world_.impl().loop().queue()->wait(moved);
    auto optimizer = new_optimizer();
    worker_.move_to(binding_.arena(), *optimizer);
    worker_.set_groups(groups_.rules(binding_));
    optimizer_ = std::move(optimizer);
    strategy_->arena_changed();
    for (auto& [name, plane] : state) {
      auto moved = worker_.allocator()(plane->span().count);
      for (std::size_t i = 0; i < order.size(); ++i)
        copy(moved->span().at(binding_.arena().slots()[i].range),
             plane->span().at(before[static_cast<std::size_t>(order[i])].range));
      plane = std::move(moved);
    }
    restore_state(*optimizer_, state);
  });
  install_hooks();
  gradients_.arena_changed();
  if (read_order_) read_order_ = std::make_unique<ReadOrder>(binding_);
  std::vector<int> registered;
  for (const int slot : order) registered.push_back(registered_[static_cast<std::size_t>(slot)]);
  registered_ = std::move(registered);
  reordered_ = 0;
  for (int slot = 0; slot < binding_.slots(); ++slot)
    reordered_ += registered_[static_cast<std::size_t>(slot)] != slot;
  if (after_reorder) after_reorder();
}

OptimizerState Distributed::Impl::optimizer_state() {
  OptimizerState state;
  wait_in_order(strategy_->whole_state(state));
  flushed_ = true;
  return state;
}

void Distributed::Impl::stream_optimizer_state(int to, const TakeState& take) {
  wait_in_order(strategy_->stream_state(to, take));
  flushed_ = true;
}

// In blocks, each of which rank 0 sends from where it lies. Who finds a difference takes part to
// the end: the others wait for it.
void Distributed::Impl::verify_replicas() {
  if (strategy_->waits_for_reads()) flush();
  constexpr std::size_t kBlock = std::size_t{1} << 22;
  const auto apart = model_apart();
  const Span mine = apart ? apart->span() : binding_.arena().parameters();
  const bool root = world_.rank() == 0;
  const auto memory = root ? nullptr : allocate(std::min(kBlock, mine.count));
  int different = -1;
  for (std::size_t at = 0; at < mine.count; at += kBlock) {
    const Range block{at, std::min(kBlock, mine.count - at)};
    const Span own = mine.at(block), rank_0 = root ? own : memory->span().at({0, block.count});
    wait_in_order(fabric().broadcast(World::Impl::kOwnChannel, rank_0, 0, world_.impl().limit()));
    if (root) continue;
    const auto one = on_host(own), other = on_host(rank_0);
    const auto mine_now = one->span().host(), theirs = other->span().host();
    for (std::size_t i = 0; i < own.count && different < 0; ++i)
      if (std::bit_cast<std::uint32_t>(mine_now[i]) != std::bit_cast<std::uint32_t>(theirs[i]))
        different = binding_.arena().slot_at(at + i);  // a gap has none
  }
  if (different >= 0)
    throw Error(fmt::format("replicas differ after step {}: '{}' of rank {} is not that of rank 0",
                            worker_.progress.steps,
                            binding_.arena().slots()[static_cast<std::size_t>(different)].name,
                            world_.rank()));
  after_flush();
}

}  // namespace skein

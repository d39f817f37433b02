#include "strategy/dear.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/statistics.h"
#include "core/units.h"
#include "kernels/bf16.h"
#include "kernels/kernels.h"
#include "skein/error.h"
#include "strategy/move_state.h"
#include "strategy/shards.h"

namespace skein {
namespace {

constexpr std::uint64_t kTunerSeed = 1;

// Steps after a change of plan that are not typical yet: memory is touched for the first time, and
// the first step has no gathers of its own plan to wait for.
constexpr int kSettle = 2;

// What the next step waits for, of each bucket: its gather, and its gradients being zero.
constexpr int kParts = 2;

// Elements that are updated or cleared before whatever else can go on gets its turn: a forward may
// wait for it, or the link.
constexpr std::size_t kPiece = 1 << 17;

std::size_t parse_start(const std::string& text) {
  try {
    return FusionTuner(parse_bytes(text)).proposal();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("strategy.fusion_start = '{}': {}", text, error.what()));
  }
}

}  // namespace

Dear::Options::Options(OptionReader& reader) : Synchronous::Options(reader) {
  const std::string size = reader.value_of("fusion");
  tune = size == "auto";
  const std::string start = reader.text(
      "fusion_start", "25MiB", "SIZE", "bucket size with which the search for the best one begins");
  if (!tune && reader.given("fusion_start"))
    throw ConfigError(
        fmt::format("strategy.fusion_start = '{}': fusion = '{}' is not tuned; expected "
                    "one of the two",
                    start, size));
  if (tune) fusion = Fusion::of(parse_start(start));
  trial_steps = static_cast<int>(
      reader.whole("trial_steps", trial_steps, 1, 1000, "steps by which a bucket size is judged"));
}

Dear::Dear(Worker& worker, const Options& options)
    : Synchronous(worker, kTraits, options),
      masters_(worker.arena().size(), worker.allocator()),
      changed_(worker.loop()),
      pending_(static_cast<std::size_t>(plan().count()), 0),
      there_(pending_.size()),
      trial_steps_(options.trial_steps),
      bucket_bytes_(options.fusion.bytes) {
  if (worker.optimizer().per_tensor())
    throw ConfigError(
        "strategy dear: the optimizer looks at tensors as wholes (skein::PerTensor), but a worker "
        "of dear updates a part of the model that is cut within tensors; expected an elementwise "
        "optimizer or another strategy: allreduce makes the same updates");
  behaviour_.waits_for_reads = worker.size() > 1;
  if (options.tune && worker.size() > 1 && worker.rank() == 0)
    tuner_.emplace(bucket_bytes_, kTunerSeed);
  own_shards();
}

void Dear::own_shards() {
  const auto shards = shards_of(worker_.fabric(), plan(), worker_.rank());
  worker_.optimizer().own(shards);
  masters_.own(shards);
}

Range Dear::own_shard(int bucket) const {
  return shard_of(worker_.fabric(), plan(), bucket, worker_.rank());
}

Task<> Dear::sum(int bucket) {
  const Time begin = worker_.loop().now();
  co_await worker_.fabric().reduce_scatter(
      worker_.channel(kGradients), gradients(plan().range(bucket)), worker_.limit(), wire());
  trace_turn(Lane::reduce_scatter, bucket, begin, scatters_free_);
}

// What this forward has not read may still be on its way.
Task<> Dear::begin_step(std::int64_t samples) {
  co_await all_arrived();
  co_await Synchronous::begin_step(samples);
}

Task<> Dear::apply(UpdateContext context) {
  // The user looks at gradients in the step itself, not while the next forward runs.
  const bool shown = worker_.before_update != nullptr && !context.skip;
  if (shown) co_await prepare(context, true);
  if (!context.skip) ++worker_.progress.steps;
  pending_.assign(pending_.size(), kParts);
  restore_ = std::exchange(rounded_, rounds());
  gathers_.clear();
  if (worker_.size() == 1)
    co_await update_all(context, shown);
  else
    updating_ = ScopedJob(worker_.loop().spawn(update_and_gather(context, shown)));
  if (told() > 0) co_await change_plan(static_cast<std::size_t>(told()));
  if (tuner_) time_step();
}

// Rank 0 judges a size by its own steps, and tells the others with the next step's table.
void Dear::time_step() {
  const Time now = worker_.loop().now();
  if (last_step_ != Time()) step_seconds_.push_back(seconds(now - last_step_));
  last_step_ = now;
  if (tuner_->done() || std::ssize(step_seconds_) < kSettle + trial_steps_) return;
  step_seconds_.erase(step_seconds_.begin(), step_seconds_.begin() + kSettle);
  // On a virtual cluster a step may take no time at all.
  tuner_->observe(std::max(1e-9, quantile(std::exchange(step_seconds_, {}), 0.5)));
  skip_known_plans();
  const std::size_t next = tuner_->done() ? tuner_->best() : tuner_->proposal();
  if (next != bucket_bytes_) tell(static_cast<std::int64_t>(next));
}

// Sizes that cut the arena as one tried before are known already.
void Dear::skip_known_plans() {
  const auto plan_of = [&](std::size_t bytes) {
    return BucketPlan(worker_.arena(), Fusion::of(bytes));
  };
  for (bool known = true; known && !tuner_->done();) {
    const BucketPlan next = plan_of(tuner_->proposal());
    const auto same =
        std::find_if(tuner_->curve().begin(), tuner_->curve().end(),
                     [&](const FusionTuner::Trial& trial) { return plan_of(trial.bytes) == next; });
    known = same != tuner_->curve().end();
    if (known) tuner_->observe_same(same->bytes);
  }
}

// The optimizer's state moves to whom it belongs under the new plan, unchanged.
Task<> Dear::change_plan(std::size_t bucket_bytes) {
  co_await exact_parameters();
  const BucketPlan before = plan(), after(worker_.arena(), Fusion::of(bucket_bytes));
  co_await move_state(worker_, before, after, worker_.channel(kMoves));
  bucket_bytes_ = bucket_bytes;
  arena_changed();
  after_flush();
}

void Dear::arena_changed() {
  set_plan(BucketPlan(worker_.arena(), Fusion::of(bucket_bytes_)));
  own_shards();
  pending_.assign(static_cast<std::size_t>(plan().count()), 0);
  there_.assign(pending_.size(), worker_.record());
  step_seconds_.clear();
  last_step_ = Time();
}

nlohmann::json Dear::figures() const {
  nlohmann::json out{{"fusion_bytes", bucket_bytes_}, {"buckets", plan().count()}};
  if (!tuner_) return out;
  auto& curve = out["fusion_curve"] = nlohmann::json::array();
  for (const auto& trial : tuner_->curve())
    curve.push_back({{"bytes", trial.bytes}, {"ms", trial.seconds * 1e3}});
  return out;
}

std::string Dear::summary() const {
  if (!tuner_ || tuner_->curve().empty()) return "";
  const std::size_t count = tuner_->curve().size();
  const std::string trials = fmt::format("{} trial{}", count, count == 1 ? "" : "s");
  std::string text = tuner_->done()
                         ? fmt::format("fusion tuned to {} in {}:",
                                       print_bytes(static_cast<double>(tuner_->best())), trials)
                         : fmt::format("fusion: {}, not yet done:", trials);
  for (const auto& trial : tuner_->curve())
    text += fmt::format(" {} {:.1f} ms,", print_bytes(static_cast<double>(trial.bytes)),
                        trial.seconds * 1e3);
  text.back() = '.';
  return text;
}

Task<> Dear::update_and_gather(UpdateContext context, bool prepared) {
  try {
    co_await update_all(context, prepared);
  } catch (...) {
    failed();
  }
}

// In the order in which the next forward reads: the last bucket lies first in the arena. Each
// gather leaves before the next shard is updated and is not held up by that, and what only backward
// needs is done behind it. The user may have set or taken away before_update() since the step.
Task<> Dear::update_all(UpdateContext& context, bool prepared) {
  if (worker_.clips() && !prepared && !context.skip) co_await prepare(context, false);
  for (int bucket = plan().count() - 1; bucket >= 0; --bucket) {
    co_await summed(bucket);
    co_await update_own_shard(bucket, context);
    gathers_.emplace_back(worker_.loop().spawn(gather(bucket)));
    co_await clear_other_shards(bucket);
  }
}

// A device does not hold up the loop, however much it is given.
std::size_t Dear::piece() const {
  const Span all = worker_.arena().parameters();
  return all.device.kind == Device::gpu ? std::max<std::size_t>(all.count, 1) : kPiece;
}

Task<> Dear::update_own_shard(int bucket, const UpdateContext& context) {
  const Range own = own_shard(bucket);
  if (restore_) masters_.restore(own, parameters());
  for (std::size_t at = own.offset; at < own.end(); at += piece()) {
    if (at > own.offset) co_await worker_.loop().idle();
    co_await worker_.update({at, std::min(piece(), own.end() - at)}, context);
  }
  if (rounds()) masters_.keep(own, parameters());
}

// An update leaves the gradients of its own shard zero.
Task<> Dear::clear_other_shards(int bucket) {
  const Range whole = plan().range(bucket), own = own_shard(bucket);
  const Range others[] = {{whole.offset, own.offset - whole.offset},
                          {own.end(), whole.end() - own.end()}};
  for (const Range& part : others)
    for (std::size_t at = part.offset; at < part.end(); at += piece()) {
      co_await worker_.loop().idle();
      fill(gradients({at, std::min(piece(), part.end() - at)}), 0);
    }
  ended_for(bucket);
}

Task<> Dear::gather(int bucket) {
  try {
    const Time begin = worker_.loop().now();
    co_await worker_.fabric().all_gather(worker_.channel(kParameters),
                                         parameters().at(plan().range(bucket)), worker_.limit(),
                                         wire());
    if (worker_.size() > 1) trace_turn(Lane::all_gather, bucket, begin, gathers_free_);
    ended_for(bucket);
  } catch (...) {
    failed();
  }
}

Task<> Dear::prepare(UpdateContext& context, bool show) {
  co_await all_summed();
  const Worker::SquaredNorm norm = [this] { return squared_norm_of_sum(); };
  if (show)
    co_await worker_.prepare(context, norm);
  else
    co_await worker_.clip(context, norm);
}

void Dear::ended_for(int bucket) {
  const auto at = static_cast<std::size_t>(bucket);
  if (--pending_[at] > 0) return;
  there_[at] = worker_.record();
  changed_.notify_all();
}

void Dear::failed() {
  if (!error_) error_ = std::current_exception();
  changed_.notify_all();
}

// The operations that bring the bucket end by themselves, well or not.
Task<Mark> Dear::need(int bucket) {
  while (pending_[static_cast<std::size_t>(bucket)] > 0) {
    if (error_) std::rethrow_exception(error_);
    co_await changed_.wait();
  }
  co_return there_[static_cast<std::size_t>(bucket)];
}

Task<> Dear::all_arrived() {
  for (int bucket = 0; bucket < plan().count(); ++bucket) co_await need(bucket);
  worker_.model_updated();
}

Task<> Dear::flush() {
  co_await Synchronous::flush();
  co_await exact_parameters();
}

Task<> Dear::exact_parameters() {
  co_await all_arrived();
  if (!rounded_) co_return;
  for (int bucket = 0; bucket < plan().count(); ++bucket) {
    masters_.restore(own_shard(bucket), parameters());
    co_await worker_.fabric().all_gather(worker_.channel(kParameters),
                                         parameters().at(plan().range(bucket)), worker_.limit());
  }
  rounded_ = false;
}

// The same rounding that a gather makes of the same masters, so nobody need be asked.
void Dear::after_flush() {
  if (!rounds() || rounded_) return;
  for (int bucket = 0; bucket < plan().count(); ++bucket)
    masters_.keep(own_shard(bucket), parameters());
  round_to_bf16(parameters());
  rounded_ = true;
}

Task<> Dear::stream_state(int to, const TakeState& take) {
  co_await exact_parameters();
  co_await bring_state(worker_, plan(), to, worker_.channel(kMoves), take);
}

Task<> Dear::take_over_state(Optimizer& from, const BucketPlan& before,
                             const std::vector<Placed>& placed) {
  co_await move_state(worker_, from, before, plan(), placed, worker_.channel(kMoves));
}

}  // namespace skein

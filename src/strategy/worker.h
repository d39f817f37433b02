// What a strategy may touch: one worker's part of a run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/arena.h"
#include "core/loop.h"
#include "core/rng.h"
#include "core/trace.h"
#include "fabric/fabric.h"
#include "optimize/optimizer.h"
#include "optimize/schedule.h"
#include "skein/averaged_gradients.h"

namespace skein {

// How far training has come, counted over all workers. Part of a checkpoint.
struct Progress {
  std::int64_t samples = 0;
  std::int64_t steps = 0;            // updates applied
  std::int64_t batch_reference = 0;  // lockstep: samples that weigh 1 in an average; 0 before the
                                     // first step
  std::int64_t round_reference = 0;  // abs: samples of the run's first round; 0 before it
};

// What a strategy and its driver measure as they go.
struct Meters {
  Duration compute{};             // of the last step: forward and backward, waiting excluded
  Duration update{};              // optimizer, and what else is done to weights and gradients
  double seconds_per_sample = 0;  // smoothed compute time

  // A step's forward and backward are over.
  void computed(Duration time, std::int64_t samples);
};

class Worker {
 public:
  // Takes the fabric's next block of channels, unless the caller has one for it.
  Worker(Fabric& fabric, Arena& arena, Optimizer& optimizer, LearningRate learning_rate,
         Trace& trace, Duration patience, double clip, std::uint64_t seed = 0,
         std::optional<Channel> channels = std::nullopt)
      : fabric_(fabric),
        arena_(&arena),
        optimizer_(&optimizer),
        learning_rate_(learning_rate),
        trace_(trace),
        patience_(patience),
        clip_(clip),
        seed_(seed),
        channels_(channels ? *channels : fabric.allot_channels()) {}

  int rank() const { return fabric_.rank(); }
  int size() const { return fabric_.size(); }
  Fabric& fabric() const { return fabric_; }
  Loop& loop() const { return fabric_.loop(); }
  Arena& arena() const { return *arena_; }
  Optimizer& optimizer() const { return *optimizer_; }
  Trace& trace() const { return trace_; }

  // Of the run: the same on all workers. And this worker's own random numbers for a purpose.
  std::uint64_t seed() const { return seed_; }
  Rng rng(std::uint64_t purpose) const {
    return Rng(seed_).split(purpose).split(static_cast<std::uint64_t>(rank()));
  }

  // Channels of this worker's strategy alone, from 0 to 6. All ranks make the same workers in the
  // same order.
  Channel channel(Channel own) const {
    SKEIN_CHECK(own >= 0 && own < kChannelBlock - 1, "channel {} of {}", own, kChannelBlock - 1);
    return channels_ + own;
  }

  // The channel after those: of the queue of samples that the workers draw from.
  Channel queue_channel() const { return channels_ + kChannelBlock - 1; }

  // Memory where the planes are; and for state beside them, which no peer reads.
  std::unique_ptr<Memory> allocate(std::size_t count) const {
    return fabric_.allocate_like(arena_->parameters(), count, Type::f32);
  }
  Allocate allocator() const {
    if (arena_->parameters().device.kind != Device::gpu) return allocate_on_heap;
    return [this](std::size_t count) { return allocate(count); };
  }

  // The present end of the work on this worker's queue, and the wait for it: null, and nothing, on
  // the host.
  Mark record() const { return skein::record(loop().queue()); }
  Task<> complete() const { return until_reached(loop(), record()); }
  Task<double> value_of(Figure figure) const { return skein::value_of(loop(), std::move(figure)); }

  // The longest silence of a peer that is waited for, and the limit that this is to an operation.
  // And when an operation that starts now must have ended, where that is to be a moment.
  Duration patience() const { return patience_; }
  Limit limit() const { return Limit::silence(patience_); }
  Deadline deadline() const { return loop().now() + patience_; }

  // Whether an update needs the norm of the whole gradient: then prepare() comes before it.
  bool wants_norm() const { return clips() || before_update; }
  bool clips() const { return clip_ > 0; }

  // The squared norm of the gradient plane as it is, `context.gradient_scale` not in it; the same
  // on all workers that share the update, who ask for it together.
  using SquaredNorm = std::function<Task<double>()>;

  // Shows `before_update` the gradient that an update is about to be made of, then clips it.
  // `context` says what came of it. `of_one_step`: all of the gradient was computed in the step
  // that has just ended. Both arguments must outlive the task.
  Task<> prepare(UpdateContext& context, const SquaredNorm& squared_norm, bool of_one_step = true);

  // Only clips it.
  Task<> clip(UpdateContext& context, const SquaredNorm& squared_norm);

  // For a previewed update by a gradient of that squared norm: what the last prepare() did to its
  // own, before_update()'s factor and limit and clipping. Returns false where no update by this
  // gradient should be foreseen: its norm is not finite, or before_update() has decided nothing
  // yet, skipped the last update, or changed elements one by one.
  bool prepare_preview(UpdateContext& context, double squared_norm) const;

  // How the next update is to be made, as far as gradients have no part in it. Notes it in
  // `decision`.
  UpdateContext next_update();

  // The same of an update that nobody makes: nothing is noted.
  UpdateContext previewed_update() const {
    return {.learning_rate = learning_rate(), .step = progress.steps + 1, .groups = groups_};
  }

  // The learning rate of an update made now: it follows global samples, `uncounted` among them.
  double learning_rate() const { return learning_rate_.at(progress.samples + uncounted); }
  const LearningRate& schedule() const { return learning_rate_; }
  void set_learning_rate(LearningRate rate) { learning_rate_ = rate; }

  // The rules of updates from the next one on; null for none. For the arena as it is.
  void set_groups(std::shared_ptr<const Groups> groups) { groups_ = std::move(groups); }
  const Groups* groups() const { return groups_.get(); }

  // The model lies elsewhere from now on. Only between steps; then Strategy::arena_changed().
  void move_to(Arena& arena, Optimizer& optimizer) {
    arena_ = &arena;
    optimizer_ = &optimizer;
  }

  // Applies the optimizer to `range` of the model, or clears its gradients where the context says
  // skip. `context` must outlive the task.
  Task<> update(Range range, const UpdateContext& context);

  // The same where the caller applies the optimizer to `count` elements itself, which `apply` does
  // at once. It must outlive the task.
  Task<> update(std::size_t count, const std::function<void()>& apply);

  // Something was done to weights or gradients from `begin` until now, which counts as update.
  void updated(std::string_view what, Time begin);

  // What an element's update takes on the clock besides what it really takes: where time is
  // simulated, nothing does.
  double modelled_update_seconds = 0;

  // What the user does to gradients before they are applied; empty for nothing. In real runs it
  // ends when the user's own thread has done it.
  std::function<Task<>(AveragedGradients&)> before_update;

  // Called on the loop when an update of the model is complete, and before the next one: the
  // arena's parameters are what it has made of them. It may be called more than once for an update,
  // and for one that was skipped: progress.steps tells updates apart. Empty for nothing.
  std::function<void()> after_update;

  // For strategies: calls it, as a part of the update.
  void model_updated();

  // What it is shown, as the driver may need it: set while `before_update` runs.
  struct Shown {
    UpdateContext* context = nullptr;
    const SquaredNorm* squared_norm = nullptr;
  };
  Shown shown;

  // A digest of how the last update was to be made: rates, groups, what came of `before_update`; 0
  // before. Workers that share updates compare it, since one that decided otherwise would have
  // another model.
  std::int64_t decision = 0;

  Progress progress;

  // Samples that all workers together have trained on beyond progress.samples, as this worker
  // estimates it. Set by strategies that count samples some steps after they were trained on.
  std::int64_t uncounted = 0;

  Meters meters;
  std::int64_t budget = 0;  // samples at which the run ends; 0: unknown

  // The user of this worker wants the run to end; and all workers know that one of them does, which
  // they learn at the end of the same step.
  bool wants_to_stop = false;
  bool all_stop = false;

 private:
  Fabric& fabric_;
  Arena* arena_;
  Optimizer* optimizer_;
  LearningRate learning_rate_;
  std::shared_ptr<const Groups> groups_;
  Trace& trace_;
  Duration patience_;
  double clip_;
  std::optional<AveragedGradients> decided_;  // as before_update() left it in the last update
  std::uint64_t seed_;
  Channel channels_;
};

}  // namespace skein

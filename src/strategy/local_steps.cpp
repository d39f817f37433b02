#include "strategy/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/field_names.h"
#include "kernels/kernels.h"

namespace skein {

LocalSteps::LocalSteps(Worker& worker, const StrategyTraits& traits, const Options& options)
    : Strategy(worker, traits),
      options_(options),
      plan_(worker.arena(), Fusion::whole()),
      snapshot_(plane(worker, "snapshot", !options.pauses)),
      mean_(plane(worker, "mean", true)),
      averaged_(averaged_state(worker, options.average_state)),
      outer_(worker, options.outer_momentum),
      round_(worker, planes(), worker.channel(kModels), worker.channel(kNotes)),
      merged_at_(worker.loop().now()),
      shares_{static_cast<double>(worker.size()), static_cast<double>(worker.size())} {}

Span LocalSteps::plane(Worker& worker, const char* name, bool wanted) {
  return wanted && worker.size() > 1 ? worker.arena().plane(name) : Span{};
}

std::vector<LocalSteps::Averaged> LocalSteps::averaged_state(Worker& worker, bool wanted) {
  std::vector<Averaged> all;
  if (!wanted || worker.size() == 1) return all;
  for (const auto& [name, state] : worker.optimizer().state())
    all.push_back({state, worker.arena().plane("mean of " + name)});
  return all;
}

std::vector<Span> LocalSteps::planes() const {
  std::vector<Span> all{mean_};
  for (const Averaged& each : averaged_) all.push_back(each.mean);
  return all;
}

Task<> LocalSteps::begin_step(std::int64_t) {
  in_step_ = true;
  outer_.follow_writes(worker_.arena().parameters(), mean_);
  co_return;
}

Task<> LocalSteps::update(float gradient_scale) {
  UpdateContext context = worker_.next_update();
  context.gradient_scale = gradient_scale;
  const Worker::SquaredNorm norm = [this] {
    return worker_.value_of(squared_norm(worker_.arena().gradients()));
  };
  if (worker_.wants_norm()) co_await worker_.prepare(context, norm);
  if (!context.skip) ++worker_.progress.steps;
  co_await worker_.update({0, worker_.arena().size()}, context);
  worker_.model_updated();
}

Task<> LocalSteps::local_step(std::int64_t samples) {
  in_step_ = false;
  if (worker_.size() == 1) worker_.all_stop = worker_.wants_to_stop;
  if (samples == 0) {
    fill(worker_.arena().gradients(), 0);
    co_return;
  }
  settled_ = false;
  co_await update(1);
  ++steps_since_post_;
  ++steps_since_merge_;
  ++steps_in_period_;
  if (worker_.size() == 1) {
    worker_.progress.samples += samples;
  } else {
    samples_ += samples;
    follow_schedule();
  }
}

// Own samples that are not merged yet stand for those of all workers. The schedule never goes back
// because a round came with fewer.
void LocalSteps::follow_schedule() {
  const double share = std::min(shares_[0], shares_[1]);
  const std::int64_t counted = worker_.progress.samples;
  reached_ = std::max(reached_,
                      counted + std::lround(static_cast<double>(samples_ + sent_samples_) * share));
  worker_.uncounted = reached_ - counted;
}

void LocalSteps::learn_share(const RoundNotes& all) {
  const std::int64_t own = std::exchange(sent_samples_, 0);
  if (own > 0 && all.settling == 0)
    shares_ = {static_cast<double>(all.samples) / static_cast<double>(own), shares_[0]};
}

Task<> LocalSteps::synchronous_step(std::int64_t samples) {
  in_step_ = false;
  const Span gradients = worker_.arena().gradients();
  samples > 0 ? scale(gradients, static_cast<float>(samples)) : fill(gradients, 0);
  co_await synchronous_round({.samples = samples});
}

Task<RoundNotes> LocalSteps::synchronous_round(const RoundNotes& own) {
  round_.post(own, {worker_.arena().gradients()});
  const RoundNotes all = co_await round_.take();
  if (all.samples > 0) co_await update(static_cast<float>(1 / static_cast<double>(all.samples)));
  worker_.progress.samples += all.samples;
  co_return all;
}

bool LocalSteps::part_done() const {
  return worker_.budget > 0 && samples_ * worker_.size() >= worker_.budget;
}

void LocalSteps::post(bool settling) {
  const Span model = worker_.arena().parameters();
  if (options_.pauses)
    copy(mean_, model);
  else
    copy_to_both(snapshot_, mean_, model);
  for (const Averaged& each : averaged_) copy(each.mean, each.state);
  const bool carries = !settling || !settled_;
  // What the device has yet to find out is told a round later.
  if (reached(worker_.loop(), distance_.mark())) own_distance_ = distance_;
  sent_samples_ = std::exchange(samples_, 0);
  round_.post({sent_samples_, own_distance_, settling ? 1 : 0, carries ? 1 : 0});
  steps_since_post_ = 0;
}

Task<RoundNotes> LocalSteps::merge() {
  const RoundNotes all = co_await round_.take();
  if (all.carries == 0) co_return all;
  const Time begin = worker_.loop().now();
  const bool all_settle = all.settling == worker_.size();
  // Where nobody has trained since the last round all models are equal, and stay as they are.
  if (all.samples > 0) {
    take_in_mean();
    // A flush's last round is none of the outer momentum's: what it looks at and saves is the mean.
    if (outer_.on() && !all_settle) outer_.move_on(worker_.arena().parameters(), mean_);
  }
  if (!all_settle) {
    steps_in_period_ = 0;
    merged_at_ = worker_.loop().now();
  }
  worker_.updated("merge", begin);
  worker_.progress.samples += all.samples;
  learn_share(all);
  follow_schedule();
  if (rounds_++ > 0) consensus_ = all.figure / worker_.size();
  if (steps_since_merge_ > 0) steps_between_merges_.add(last_steps_ = steps_since_merge_);
  steps_since_merge_ = 0;
  settled_ = options_.pauses || all_settle;
  co_return all;
}

// Where no step was made since, the mean itself is the model, and not what x + (a − x) rounds to.
void LocalSteps::take_in_mean() {
  const float share = 1 / static_cast<float>(worker_.size());
  const Span model = worker_.arena().parameters();
  distance_ = steps_since_post_ == 0 ? become_mean(model, share, mean_)
                                     : move_by_mean(model, share, mean_, snapshot_);
  // No difference here: it could leave AdamW's mean of squares negative.
  for (const Averaged& each : averaged_) copy_scaled(each.state, share, each.mean);
}

// A round to which all workers came from here had no step in flight anywhere: it leaves all of them
// with the mean itself.
Task<> LocalSteps::flush() {
  if (worker_.size() == 1) co_return;
  outer_.follow_writes(worker_.arena().parameters(), mean_);
  for (bool all_here = false; !all_here;) {
    RoundNotes all;
    if (warming_up() && !round_.posted()) {
      if (in_step_) refuse_flush_within_step();
      all = co_await synchronous_round({.settling = 1, .carries = 0});
    } else {
      if (!round_.posted()) post(true);
      all = co_await merge();
    }
    all_here = all.settling == worker_.size();
  }
  // All samples are counted: the schedule stands at the same place on all workers.
  reached_ = worker_.progress.samples;
  worker_.uncounted = 0;
  outer_.remember(worker_.arena().parameters(), mean_);
}

std::vector<std::int64_t> LocalSteps::own_words() const {
  return {std::bit_cast<std::int64_t>(shares_[0]), std::bit_cast<std::int64_t>(shares_[1]),
          steps_in_period_};
}

void LocalSteps::restore_own(const std::vector<std::int64_t>& words) {
  if (words.size() != shares_.size() + 1) return;
  steps_in_period_ = std::max<std::int64_t>(0, words.back());
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    const auto share = std::bit_cast<double>(words[i]);
    if (share >= 1 && std::isfinite(share)) shares_[i] = share;
  }
}

Task<> LocalSteps::average(Span values) {
  co_await worker_.fabric().all_reduce(worker_.channel(kModels), values, worker_.limit());
  scale(values, 1 / static_cast<float>(worker_.size()));
}

nlohmann::json LocalSteps::figures() const {
  return {
      {"rounds", rounds_},
      {"steps_between_merges", steps_between_merges_.json()},
      {"mean_steps_between_merges", steps_between_merges_.mean()},
      {field::kConsensusDistance, has_models() ? nlohmann::json(consensus_) : nlohmann::json()}};
}

nlohmann::json LocalSteps::step_figures() const {
  return {{"rounds", rounds_},
          {"steps_between_merges", last_steps_},
          {field::kConsensusDistance, consensus_}};
}

std::string LocalSteps::summary() const {
  if (worker_.size() == 1) return "";
  std::string text = fmt::format("{} rounds, {:.2f} steps of this worker between merges", rounds_,
                                 steps_between_merges_.mean());
  if (has_models()) text += fmt::format("; mean squared distance of the models {:.3g}", consensus_);
  return text;
}

}  // namespace skein

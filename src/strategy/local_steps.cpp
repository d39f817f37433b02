#include "strategy/local_steps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/kernels.h"

namespace skein {

LocalSteps::LocalSteps(Worker& worker, Span snapshot, bool average_state)
    : Strategy(worker),
      plan_(worker.arena(), Fusion::whole()),
      snapshot_(snapshot),
      mean_(worker.size() > 1 ? worker.arena().plane("mean") : Span{}),
      averaged_(averaged_state(worker, average_state)),
      round_(worker, planes(), kModels, kNotes),
      merged_at_(worker.loop().now()) {}

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

Task<> LocalSteps::begin_step(std::int64_t) { co_return; }

Task<> LocalSteps::update(float gradient_scale) {
  UpdateContext context{.learning_rate = worker_.learning_rate(),
                        .gradient_scale = gradient_scale,
                        .step = worker_.progress.steps + 1};
  if (worker_.wants_norm())
    co_await worker_.prepare(context, squared_norm(worker_.arena().gradients()));
  if (!context.skip) ++worker_.progress.steps;
  co_await worker_.update({0, worker_.arena().size()}, context);
}

Task<> LocalSteps::local_step(std::int64_t samples) {
  settled_ = false;
  if (samples > 0) co_await update(1);
  ++steps_since_post_;
  ++steps_since_merge_;
  if (worker_.size() > 1) {
    samples_ += samples;
  } else {
    worker_.progress.samples += samples;
    worker_.all_stop = worker_.wants_to_stop;
  }
}

Task<> LocalSteps::synchronous_step(std::int64_t samples) {
  const Span gradients = worker_.arena().gradients();
  scale(gradients, static_cast<float>(samples));
  co_await worker_.fabric().all_reduce(kModels, gradients, worker_.deadline());
  const RoundNotes all = co_await round_.ask({.samples = samples});
  if (all.samples > 0) co_await update(static_cast<float>(1 / static_cast<double>(all.samples)));
  worker_.progress.samples += all.samples;
  settled_ = true;
}

bool LocalSteps::part_done() const {
  return worker_.budget > 0 && samples_ * worker_.size() >= worker_.budget;
}

void LocalSteps::post(bool settling) {
  const Span model = worker_.arena().parameters();
  if (!pauses()) copy(snapshot_, model);
  copy(mean_, model);
  for (const Averaged& each : averaged_) copy(each.mean, each.state);
  round_.post({std::exchange(samples_, 0), own_distance_, settling ? 1 : 0});
  steps_since_post_ = 0;
}

Task<> LocalSteps::merge() {
  const RoundNotes all = co_await round_.take();
  const Time begin = worker_.loop().now();
  take_in_mean();
  merged_at_ = worker_.loop().now();
  worker_.meters.update += merged_at_ - begin;
  worker_.trace().span(Lane::update, "merge", begin, merged_at_);
  worker_.progress.samples += all.samples;
  if (rounds_++ > 0) consensus_ = all.figure / worker_.size();
  if (steps_since_merge_ > 0) steps_between_merges_.add(last_steps_ = steps_since_merge_);
  steps_since_merge_ = 0;
  settled_ = pauses() || all.settling == worker_.size();
}

// Where no step was made since, the mean itself is the model, and not what x + (a − x) rounds to.
void LocalSteps::take_in_mean() {
  const float share = 1 / static_cast<float>(worker_.size());
  const Span model = worker_.arena().parameters();
  scale(mean_, share);
  own_distance_ = squared_distance(snapshot_, mean_);
  if (steps_since_post_ == 0)
    copy(model, mean_);
  else
    add_difference(model, mean_, snapshot_);
  // No difference here: it could leave AdamW's mean of squares negative.
  for (const Averaged& each : averaged_) {
    scale(each.mean, share);
    copy(each.state, each.mean);
  }
}

// A round to which all workers came from here had no step in flight anywhere: it leaves all of them
// with the mean itself.
Task<> LocalSteps::flush() {
  if (worker_.size() == 1) co_return;
  while (!settled_) {
    if (!round_.posted()) post(true);
    co_await merge();
  }
}

Task<> LocalSteps::whole_state(OptimizerState& state) {
  co_await Strategy::whole_state(state);
  if (worker_.size() == 1) co_return;
  for (auto& [name, plane] : state) {
    co_await worker_.fabric().all_reduce(kModels, plane->span(), worker_.deadline());
    scale(plane->span(), 1 / static_cast<float>(worker_.size()));
  }
}

nlohmann::json LocalSteps::figures() const {
  return {{"rounds", rounds_},
          {"steps_between_merges", steps_between_merges_.json()},
          {"mean_steps_between_merges", steps_between_merges_.mean()},
          {"consensus_distance", consensus_}};
}

nlohmann::json LocalSteps::step_figures() const {
  return {{"rounds", rounds_},
          {"steps_between_merges", last_steps_},
          {"consensus_distance", consensus_}};
}

std::string LocalSteps::summary() const {
  if (worker_.size() == 1) return "";
  return fmt::format(
      "{} rounds, {:.2f} steps of this worker between merges; mean squared distance of the models "
      "{:.3g}",
      rounds_, steps_between_merges_.mean(), consensus_);
}

}  // namespace skein

#include "strategy/local_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/kernels.h"

namespace skein {
namespace {

constexpr std::size_t kStatePiece = std::size_t{1} << 20;  // elements

std::vector<Range> pieces_of(std::size_t count) {
  std::vector<Range> pieces;
  for (std::size_t at = 0; at < count; at += kStatePiece)
    pieces.push_back({at, std::min(kStatePiece, count - at)});
  return pieces;
}

}  // namespace

LocalSteps::LocalSteps(Worker& worker, const Options& options)
    : Strategy(worker),
      options_(options),
      plan_(worker.arena(), Fusion::whole()),
      snapshot_(plane(worker, "snapshot", !options.pauses)),
      mean_(plane(worker, "mean", true)),
      averaged_(averaged_state(worker, options.average_state)),
      outer_(worker, options.outer_momentum),
      round_(worker, planes(), worker.channel(kModels), worker.channel(kNotes)),
      merged_at_(worker.loop().now()) {}

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
}

Task<> LocalSteps::local_step(std::int64_t samples) {
  in_step_ = false;
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
  in_step_ = false;
  scale(worker_.arena().gradients(), static_cast<float>(samples));
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
  round_.post({std::exchange(samples_, 0), own_distance_, settling ? 1 : 0, carries ? 1 : 0});
  steps_since_post_ = 0;
}

Task<RoundNotes> LocalSteps::merge() {
  const RoundNotes all = co_await round_.take();
  if (all.carries == 0) co_return all;
  const Time begin = worker_.loop().now();
  take_in_mean();
  const bool all_settle = all.settling == worker_.size();
  if (outer_.on() && !all_settle) outer_.move_on(worker_.arena().parameters(), mean_);
  merged_at_ = worker_.loop().now();
  worker_.meters.update += merged_at_ - begin;
  worker_.trace().span(Lane::update, "merge", begin, merged_at_);
  worker_.progress.samples += all.samples;
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
  outer_.stop();
}

Task<> LocalSteps::average(Span values) {
  co_await worker_.fabric().all_reduce(worker_.channel(kModels), values, worker_.limit());
  scale(values, 1 / static_cast<float>(worker_.size()));
}

// In the pieces in which it is streamed: the order of a sum depends on where it is cut.
Task<> LocalSteps::whole_state(OptimizerState& state) {
  co_await Strategy::whole_state(state);
  if (worker_.size() == 1) co_return;
  const auto pieces = pieces_of(worker_.arena().size());
  for (auto& [name, plane] : state)
    for (const Range piece : pieces) co_await average(plane->span().at(piece));
}

Task<> LocalSteps::stream_state(int to, const TakeState& take) {
  if (worker_.size() == 1) {
    co_await Strategy::stream_state(to, take);
    co_return;
  }
  const auto memory = worker_.allocate(kStatePiece);
  const auto pieces = pieces_of(worker_.arena().size());
  const auto state = worker_.optimizer().state();
  for (const auto& [name, vector] : state)
    for (const Range piece : pieces) {
      const Span mean = memory->span().at({0, piece.count});
      copy(mean, vector.at(piece));
      co_await average(mean);
      if (worker_.rank() == to) take(name, piece, mean);
    }
}

nlohmann::json LocalSteps::figures() const {
  return {{"rounds", rounds_},
          {"steps_between_merges", steps_between_merges_.json()},
          {"mean_steps_between_merges", steps_between_merges_.mean()},
          {"consensus_distance", has_models() ? nlohmann::json(consensus_) : nlohmann::json()}};
}

nlohmann::json LocalSteps::step_figures() const {
  return {{"rounds", rounds_},
          {"steps_between_merges", last_steps_},
          {"consensus_distance", consensus_}};
}

std::string LocalSteps::summary() const {
  if (worker_.size() == 1) return "";
  std::string text = fmt::format("{} rounds, {:.2f} steps of this worker between merges", rounds_,
                                 steps_between_merges_.mean());
  if (has_models()) text += fmt::format("; mean squared distance of the models {:.3g}", consensus_);
  return text;
}

}  // namespace skein

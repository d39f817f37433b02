#include "strategy/abs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/field_names.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "skein/error.h"

namespace skein {
namespace {

Abs::Options resolved(Abs::Options options, Optimizer& optimizer) {
  using Lookahead = Abs::Options::Lookahead;
  if (options.lookahead != Lookahead::automatic) return options;
  const auto& names = optimizer.owned_state().names();
  const bool momentum = !std::all_of(names.begin(), names.end(), holds_squares);
  options.lookahead = momentum ? Lookahead::own : Lookahead::share;
  return options;
}

// sum += weight · gradients, which are zero then: in one pass over the host's memory.
void move_into(Span sum, float weight, Span gradients) {
  in_one_pass(sum, [&](Range range) {
    axpy(sum.at(range), weight, gradients.at(range));
    fill(gradients.at(range), 0);
  });
}

}  // namespace

Abs::Options::Options(OptionReader& reader) {
  lr_scaling = reader.choice<Scaling>(
      "lr_scaling", {{"none", Scaling::none}, {"linear", Scaling::linear}, {"sqrt", Scaling::sqrt}},
      "how the learning rate follows the samples of a round");
  reference_batch = reader.whole("reference_batch", 0, 0, 1 << 30,
                                 "samples to which lr_scaling compares; 0: the first round's");
  warmup_rounds = reader.whole("warmup_rounds", 0, 0, 1 << 30, "first rounds without a delay");
  max_micro_batches = reader.whole("max_micro_batches", max_micro_batches, 1, 1 << 20,
                                   "micro-batches of a worker in one round, after which it waits");
  lookahead = reader.choice<Lookahead>("lookahead",
                                       {{"auto", Lookahead::automatic},
                                        {"own", Lookahead::own},
                                        {"share", Lookahead::share},
                                        {"momentum", Lookahead::momentum},
                                        {"none", Lookahead::none}},
                                       "what of its own gradient a worker looks ahead with");
  delay = reader.choice<Delay::Kind>(
      "delay",
      {{"auto", Delay::Kind::automatic}, {"1", Delay::Kind::always}, {"0", Delay::Kind::never}},
      "rounds between a gradient and its update");
  if (reference_batch > 0 && lr_scaling == Scaling::none)
    throw ConfigError(
        fmt::format("strategy.reference_batch = {}: nothing is scaled by it; expected lr_scaling = "
                    "linear or sqrt too",
                    reference_batch));
}

Abs::Abs(Worker& worker, const Options& options)
    : Strategy(worker, kTraits),
      options_(resolved(options, worker.optimizer())),
      plan_(worker.arena(), Fusion::whole()),
      gathered_(worker.size() > 1 ? worker.arena().plane("gathered") : Span{}),
      sum_(worker.size() > 1 ? worker.arena().plane("sum") : Span{}),
      weights_(worker.size() > 1 && options_.lookahead != Options::Lookahead::none
                   ? worker.arena().plane("weights")
                   : Span{}),
      preview_(worker.optimizer(), worker.allocator()),
      round_(worker, {sum_}, worker.channel(kGradients), worker.channel(kNotes)),
      delay_(options.delay, worker.size()) {}

Task<> Abs::begin_step(std::int64_t) {
  in_step_ = true;
  co_return;
}

// Until here the step's gradients are the user's, who may look at them, change and clear them. So
// what was gathered before lies elsewhere.
void Abs::gather(std::int64_t samples) {
  batch_.round = rounds_;
  if (samples == 0) return;
  const Time begin = worker_.loop().now();
  move_into(gathered_, static_cast<float>(samples), worker_.arena().gradients());
  batch_.samples += samples;
  ++batch_.micro_batches;
  batch_.compute += worker_.meters.compute;
  part_of_update(begin);
}

// What a worker does with gradients and weights by itself is its update, not communication.
void Abs::part_of_update(Time begin) { worker_.updated("gather", begin); }

Task<> Abs::end_step(std::int64_t samples) {
  in_step_ = false;
  if (samples == 0) fill(worker_.arena().gradients(), 0);
  if (worker_.size() == 1) {
    worker_.all_stop = worker_.wants_to_stop;
    if (samples > 0) co_await update(samples, 1);
    co_return;
  }
  gather(samples);
  const bool full = samples == 0 || batch_.micro_batches >= options_.max_micro_batches;
  if (full || !goes_on()) co_await end_round();
}

// Whether another micro-batch belongs to this round.
bool Abs::goes_on() const {
  if (round_.posted()) return !round_.arrived();
  return !delay_.on() && !warming_up() && delay_.one_more(batch_.micro_batches, batch_.compute);
}

// What was gathered goes out. Who looks ahead keeps its own part of it until then.
void Abs::send_batch(bool settling, bool delayed) {
  const Time begin = worker_.loop().now();
  std::swap(sum_, gathered_);
  const bool uses_own = options_.lookahead == Options::Lookahead::own ||
                        options_.lookahead == Options::Lookahead::share;
  if (uses_own && delayed)
    copy(gathered_, sum_);
  else
    fill(gathered_, 0);
  part_of_update(begin);
  if (batch_.micro_batches > 0) micro_batches_.add(last_micro_batches_ = batch_.micro_batches);
  sent_ = std::exchange(batch_, Batch());
  ++rounds_;
  const bool carries = sent_.samples > 0 || !settling;
  Duration micro_batch{};
  if (sent_.micro_batches > 0 && !settling) micro_batch = sent_.compute / sent_.micro_batches;
  if (delayed) waited_ = delay_.would_wait(micro_batch);
  round_.post({.samples = sent_.samples,
               .settling = settling ? 1 : 0,
               .carries = carries ? 1 : 0,
               .decision = decision_,
               .slowest = micro_batch,
               .waited = std::exchange(waited_, Duration{}),
               .travel = round_.travelled()},
              {sum_});
}

Task<> Abs::end_round() {
  std::optional<RoundNotes> sum;
  if (round_.posted()) sum = co_await take_round();
  const std::int64_t age = rounds_ - sent_.round;
  const bool later = delayed();
  send_batch(false, later);
  // What was sent leaves before the update.
  co_await worker_.loop().yield();
  co_await look_back();
  if (sum) co_await apply(*sum, age);
  if (later) {
    co_await look_ahead();
  } else {
    const Time begin = worker_.loop().now();
    const RoundNotes own = co_await take_round();
    waited_ = worker_.loop().now() - begin;
    co_await apply(own, sum ? 1 : 0);
  }
}

// Parameters become what the own part of the round on its way would make of the weights. It lies
// where the next round is gathered, and is gone afterwards. Where the update cannot be foreseen the
// parameters stay the weights: an own part that is not finite would make them so, and with them
// every gradient that is computed there.
Task<> Abs::look_ahead() {
  if (options_.lookahead == Options::Lookahead::none) co_return;
  const Span parameters = worker_.arena().parameters();
  UpdateContext context = worker_.previewed_update();
  context.learning_rate = scaled_rate(expected_samples());
  if (sent_.samples > 0)
    context.gradient_scale = static_cast<float>(own_part() / static_cast<double>(sent_.samples));
  const Time begin = worker_.loop().now();
  const double norm = co_await worker_.value_of(squared_norm(gathered_));
  part_of_update(begin);
  if (!worker_.prepare_preview(context, norm)) {
    fill(gathered_, 0);
    co_return;
  }
  const std::function<void()> step = [&] {
    copy(weights_, parameters);
    ahead_ = true;
    preview_.update(parameters, gathered_, context);
    distance_ahead_ = squared_distance(parameters, weights_);
  };
  co_await worker_.update(parameters.count, step);
}

// The parameters become the weights again, bit for bit. A write to them since the look ahead shows
// in their distance from the weights; it cannot be kept, since each worker looks ahead to a point
// of its own.
Task<> Abs::look_back() {
  if (!std::exchange(ahead_, false)) co_return;
  const Time begin = worker_.loop().now();
  const Figure now = become_mean(worker_.arena().parameters(), 1, weights_);
  part_of_update(begin);
  const double before = co_await worker_.value_of(distance_ahead_);
  const double after = co_await worker_.value_of(now);
  if (after != before && std::isfinite(before))
    throw ConfigError(
        "parameters were written between steps, where those of abs are not the weights but this "
        "worker's look ahead of them: what was written is lost. Expected flush() before it, and "
        "the same write on all workers");
}

// Of the round that is on its way: as many as the last one had.
std::int64_t Abs::expected_samples() const {
  return last_samples_ > 0 ? last_samples_ : sent_.samples * worker_.size();
}

// The same on all workers, however much each computed: else gradients that do not vanish at the
// optimum, where workers have different data, would not cancel.
double Abs::own_part() const {
  return options_.lookahead == Options::Lookahead::share ? 1.0 / worker_.size() : 1;
}

bool Abs::read_model(Span into) const {
  if (ahead_) copy(into, weights_);
  return ahead_;
}

// Waits for the sum that is on its way, and leaves it in the gradients plane.
Task<RoundNotes> Abs::take_round() {
  const RoundNotes sum = co_await round_.take();
  if (sum.disagree)
    throw ConfigError(
        "before_update(), set_learning_rate(), a scheduler or freeze() did not decide the same on "
        "all workers, so their models are no longer equal. Decide by what before_update() is "
        "shown, or by steps() and samples()");
  if (sum.settling == 0)
    delay_.heard({.slowest = sum.slowest, .waited = sum.waited, .travel = sum.travel});
  // Some post the next round before they apply this one, some after: what all of them can tell is
  // what came of the one before.
  decision_ = worker_.decision;
  const Time begin = worker_.loop().now();
  if (sum.samples > 0) copy(worker_.arena().gradients(), sum_);
  part_of_update(begin);
  co_return sum;
}

// The same, and applies it. What was gathered since stays.
Task<RoundNotes> Abs::catch_up(std::int64_t age) {
  const RoundNotes sum = co_await take_round();
  co_await look_back();
  co_await apply(sum, age);
  co_return sum;
}

// The gradients plane holds the sum; afterwards it is zero.
Task<> Abs::apply(const RoundNotes& sum, std::int64_t age) {
  if (sum.samples == 0) co_return;
  staleness_.add(age);
  round_samples_.add(last_samples_ = sum.samples);
  if (worker_.progress.round_reference == 0) worker_.progress.round_reference = sum.samples;
  co_await update(sum.samples, static_cast<float>(1 / static_cast<double>(sum.samples)));
}

Task<> Abs::update(std::int64_t samples, float gradient_scale) {
  Progress& progress = worker_.progress;
  UpdateContext context = worker_.next_update();
  context.learning_rate = scaled_rate(samples);
  context.gradient_scale = gradient_scale;
  const Worker::SquaredNorm norm = [this] {
    return worker_.value_of(squared_norm(worker_.arena().gradients()));
  };
  if (worker_.wants_norm()) co_await worker_.prepare(context, norm, worker_.size() == 1);
  if (!context.skip) ++progress.steps;
  co_await worker_.update({0, worker_.arena().size()}, context);
  worker_.model_updated();
  progress.samples += samples;
}

double Abs::scaled_rate(std::int64_t samples) const {
  using Scaling = Options::Scaling;
  const double rate = worker_.learning_rate();
  if (options_.lr_scaling == Scaling::none || worker_.size() == 1) return rate;
  const auto reference = static_cast<double>(
      options_.reference_batch > 0 ? options_.reference_batch : worker_.progress.round_reference);
  if (reference == 0) return rate;  // the first round is the reference
  const double ratio = static_cast<double>(samples) / reference;
  return rate * (options_.lr_scaling == Scaling::linear ? ratio : std::sqrt(ratio));
}

// A round to which all workers came from here holds the last that any of them has gathered.
Task<> Abs::flush() {
  if (worker_.size() == 1) co_return;
  if (in_step_) refuse_flush_within_step();
  for (bool all_here = false; !all_here;) {
    if (!round_.posted()) send_batch(true, false);
    const RoundNotes sum = co_await catch_up(delayed() ? 1 : 0);
    all_here = sum.settling == worker_.size();
    if (sum.carries == 0) --rounds_;  // nothing went round
  }
}

nlohmann::json Abs::figures() const {
  return {{"rounds", rounds_},
          {"micro_batches_per_round", micro_batches_.json()},
          {"mean_micro_batches_per_round", micro_batches_.mean()},
          {"round_samples", round_samples_.json()},
          {"staleness", staleness_.json()}};
}

nlohmann::json Abs::step_figures() const {
  return {{field::kMicroBatches, last_micro_batches_}, {"round_samples", last_samples_}};
}

std::string Abs::summary() const {
  return fmt::format("{} rounds, {:.1f} samples each; {:.2f} micro-batches of this worker a round",
                     rounds_, round_samples_.mean(), micro_batches_.mean());
}

}  // namespace skein

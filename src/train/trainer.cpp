#include "train/trainer.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "core/field_names.h"
#include "core/units.h"
#include "train/batch_norm.h"
#include "train/optimizer.h"

namespace skein {
namespace {

OptimizerSpec optimizer_of(const TrainOptions& options, std::int64_t budget) {
  OptimizerSpec spec =
      options.optimizer == "adamw" ? adamw(options.learning_rate) : sgd(options.learning_rate);
  for (ParameterGroup& each : parse_parameter_groups(options.groups)) spec.group(std::move(each));
  return spec.momentum(options.momentum)
      .nesterov(options.nesterov)
      .weight_decay(options.weight_decay)
      .no_decay_1d(!options.decay_1d)
      .clip(options.clip)
      .schedule(options.schedule, budget);
}

}  // namespace

Trainer::Trainer(World& world, const TrainOptions& options, int local_rank, Time started)
    : world_(world),
      options_(options),
      compute_(options, local_rank),
      data_(open_data(options.data, options.data_settings, options.seed)),
      budget_(options.samples > 0 ? options.samples : data_.train->size() * options.epochs),
      traces_(world, options, local_rank),
      folder_(world, options),
      run_(make_run()),
      access_(run_),
      traits_(run_.traits()),
      feed_(run_, options, data_.train->size(), budget_),
      step_(run_, *model_, compute_, data_.train, options, figures_),
      bar_(clock_, stderr, options.quiet || world.rank() != 0, options.log_every) {
  check_options();
  access_.advise_nothing();
  access_.keep_folder(fmt::format("--resume {}", options.resume),
                      [this](const std::string& line) { folder_.warn(line); });
  std::string resumed_id;
  if (options.resume.empty())
    feed_.start();
  else
    resumed_id = resume();
  folder_.name_run(resumed_id);
  folder_.start({run_.steps(), done(), budget_, saved_at_, resumed_id, compute_.device().str()});
  traces_.start(access_, compute_);
  log_.emplace(run_, folder_);
  const std::int64_t every = options.eval_every > 0 ? options.eval_every : data_.train->size();
  evaluations_ = Marks(every, done());
  checkpoints_ = Marks(options.checkpoint_every, done());
  figures_.startup = now() - started;
}

Distributed Trainer::make_run() {
  torch::manual_seed(options_.seed);
  model_ = make_model(options_.model, data_.train->sample_shape(), data_.train->classes(),
                      options_.model_settings);
  compute_.take(*model_);
  StrategySpec strategy(options_.strategy);
  strategy.options = options_.strategy_settings;
  strategy.seed(options_.seed);
  Distributed run = distribute(world_, *model_, optimizer_of(options_, budget_), strategy);
  torch::manual_seed(options_.seed + 1000003 * static_cast<std::uint64_t>(world_.rank() + 1));
  run.done(budget_);  // strategies that look at the end know it from here on
  return run;
}

void Trainer::check_options() const {
  if (traits_.lockstep && options_.data_split == "once")
    throw ConfigError(
        fmt::format("--data-split once: workers of {} share every batch, so each sample comes once "
                    "an epoch already; expected own, or a strategy without lockstep",
                    options_.strategy));
  if (options_.data_split == "once" && traits_.survives_losses)
    throw ConfigError(
        fmt::format("--data-split once: workers of {} go on when one is lost, whose samples nobody "
                    "would visit; "
                    "expected own",
                    options_.strategy));
  if (options_.verify && !traits_.equal_replicas)
    throw ConfigError(fmt::format("--verify: the workers of strategy {} have models of their own",
                                  options_.strategy));
  if (options_.bn_recompute > 0 && !has_batch_norm(*model_))
    throw ConfigError(fmt::format("--bn-recompute {}: {} has no batch norm; leave the option out",
                                  options_.bn_recompute, options_.model));
}

// Returns the id of the run that the checkpoint is of, if it says so.
std::string Trainer::resume() {
  const Resumed resumed = run_.resume(options_.resume, feed_.identity());
  if (!resumed)
    throw ConfigError(
        fmt::format("--resume {}: no checkpoint there (expected {}/checkpoints/SAMPLES/state.json)",
                    options_.resume, options_.resume));
  feed_.resume(resumed, access_.data());
  saved_at_ = done();
  bar_.say(fmt::format("resumed from {}", resumed.path));
  if (done() >= budget_)
    folder_.warn(fmt::format(
        "{} has trained on {} samples already, and this run is of {}: nothing is left to train. "
        "--samples and --epochs count from the beginning; --samples {} would train on {} more",
        resumed.path, done(), budget_, done() + budget_, budget_));
  return resumed.run_id;
}

// Workers that count for themselves may be a step apart: what all take down is the mean.
std::int64_t Trainer::agreed_samples() {
  if (traits_.equal_replicas) return done();
  const auto sums = world_.sum_integers({done(), 1});
  return sums[0] / sums[1];
}

// Workers without rounds learn of the end at different steps: one may come to it while another
// comes to a mark. All come here before either, and see how many of how many are at the end.
std::pair<std::int64_t, std::int64_t> Trainer::meet(bool at_the_end) {
  if (!traits_.survives_losses) return {at_the_end ? 1 : 0, 1};
  const auto sums = world_.sum_integers({at_the_end ? 1 : 0, 1});
  return {sums[0], sums[1]};
}

// What is due, in the order of the marks: the same on all workers, who come to them one by one. A
// mark that one does not come to any more is nobody's.
void Trainer::evaluate_and_save() {
  const std::array<Marks*, 2> kinds{&evaluations_, &checkpoints_};
  if (first_due(kinds, done())) catch_up();
  while (Marks* const marks = first_due(kinds, done())) {
    const Time begin = now();
    const auto [ending, all] = meet(false);
    if (ending > 0) {
      marks->pass(marks->next());
    } else if (marks == &checkpoints_) {
      checkpoint_now();
      show(Lane::checkpoint, "checkpoint", begin);
      marks->pass(saved_at_);
    } else {
      const bool whole = evaluate_now(stop_requested);
      show(Lane::evaluation, "evaluation", begin);
      marks->pass(agreed_samples());
      reached_ =
          whole && options_.target_accuracy > 0 && quality_->accuracy >= options_.target_accuracy;
      if (reached_) return;
    }
  }
}

void Trainer::wait_for_the_end() {
  for (auto [ending, all] = meet(true); ending < all;) std::tie(ending, all) = meet(true);
}

// Whether the run is at its end, and whether workers must leave at once. One worker that was asked
// is enough, and all must know: they save together.
std::pair<bool, bool> Trainer::agree_on_the_end(bool finished) {
  const auto asked = world_.sum_integers({stop_is_urgent() ? 1 : 0, finished ? 0 : 1});
  return {asked[1] == 0, asked[0] > 0 && asked[1] > 0};
}

bool Trainer::run() {
  if (done() == 0)
    bar_.say(fmt::format("{} ({} parameters) on {}, {} worker{}, strategy {}, {} samples{}{}",
                         options_.model, print_count(static_cast<double>(run_.totals().parameters)),
                         data_.name, world_.size(), world_.size() == 1 ? "" : "s",
                         options_.strategy, budget_,
                         compute_.on_gpu() ? ", " + compute_.device().str() : "",
                         options_.precision == "f32" ? "" : ", " + options_.precision));
  while (!run_.done(budget_) && !run_.stopping() && !reached_) {
    const bool updated = train_one_step();
    evaluate_and_save();
    if (updated && log_->loss() >= 0) bar_.update(progress());
  }
  if (run_.stopping() && done() < budget_) bar_.say("stopping as asked: saving");
  catch_up();
  figures_.totals = run_.totals();
  const Time flushing = now();
  wait_for_the_end();
  run_.flush();
  figures_.flush = now() - flushing;
  show(Lane::wait, "flush", flushing);
  const bool apart = !traits_.equal_replicas;
  const auto [finished, leaving] = agree_on_the_end(done() >= budget_ || reached_);
  const Time evaluating = now();
  if (!leaving && (apart || evaluated_at_ != done())) {
    evaluate_now([] { return false; });
    show(Lane::evaluation, "evaluation", evaluating);
  }
  bar_.finish(progress());
  const Time saving = now();
  if (!options_.out.empty() && (apart || saved_at_ != done())) checkpoint_now();
  finish_checkpoint();
  show(Lane::checkpoint, "checkpoint", saving);
  if (leaving) quality_.reset();  // not as the model is now
  if (!finished)
    bar_.say(fmt::format("stopped at {} of {} samples{}", done(), budget_,
                         options_.out.empty() ? "" : ": a checkpoint is saved"));
  feed_.close();
  report(finished);
  return finished;
}

// Whether the model was updated.
bool Trainer::train_one_step() {
  const Time begin = now();
  const JobData::Step step = feed_.next();
  step_.make(step, traces_.active());
  feed_.step_over();
  figures_.training += now() - begin;
  if (!log_->is_due()) return false;
  const double iteration = milliseconds(figures_.training - last_update_);
  last_update_ = figures_.training;
  figures_.iteration_ms.push_back(iteration);
  ++figures_.iterations;
  traces_.step_done(run_.steps(), now());
  folder_.lead(run_.steps(), done());
  log_->step_over(seconds(figures_.training), iteration, step.part.samples > 0);
  if (options_.verify) access_.verify_replicas();
  return true;
}

// From `begin` until now, where anybody looks.
void Trainer::show(Lane lane, const std::string& name, Time begin) {
  if (traces_.active()) access_.span(lane, name, begin, now());
}

ProgressFigures Trainer::progress() const {
  return {done(),
          budget_,
          run_.steps(),
          log_->loss(),
          run_.learning_rate(),
          quality_ ? quality_->accuracy : -1};
}

// Waits for the steps that a device has not done yet, which are training, too.
void Trainer::catch_up() {
  const Time begin = now();
  compute_.finish();
  figures_.training += now() - begin;
}

// As an evaluation and the final model need them; with replicas that are equal.
std::vector<NamedTensor> Trainer::buffers_now() {
  if (options_.bn_recompute == 0) return access_.averaged_buffers();
  return fresh_buffers(run_, *model_, compute_, *data_.train,
                       {options_.bn_recompute, options_.batch, options_.seed});
}

bool Trainer::evaluate_now(const std::function<bool()>& stop) {
  const Time begin = now();
  const auto call = access_.call("an evaluation");
  folder_.lead(run_.steps(), done());
  const auto found = evaluate(
      run_, *model_, compute_, *data_.test, [this] { return buffers_now(); }, stop);
  figures_.evaluation += now() - begin;
  if (!found) return false;
  quality_ = found;
  evaluated_at_ = done();
  if (options_.target_accuracy > 0 && figures_.target_seconds < 0 &&
      quality_->accuracy >= options_.target_accuracy)
    figures_.target_seconds = seconds(figures_.training);
  folder_.write({{field::kKind, field::kEvaluationKind},
                 {field::kStep, run_.steps()},
                 {field::kSamples, done()},
                 {field::kSeconds, seconds(figures_.training)},
                 {field::kLoss, quality_->loss},
                 {field::kAccuracy, quality_->accuracy}});
  if (auto& events = folder_.events()) {
    events->scalar(field::kAccuracy, run_.steps(), quality_->accuracy);
    events->scalar("evaluation_loss", run_.steps(), quality_->loss);
  }
  return true;
}

void Trainer::checkpoint_now() {
  const Time begin = now();
  const auto call = access_.call("the saving of a checkpoint");
  folder_.lead(run_.steps(), done());
  run_.flush();  // may apply what was on its way, and count it
  CheckpointOptions how{.keep = options_.keep_checkpoints, .identity = feed_.identity()};
  access_.set_run(folder_.run_id(), feed_.place(how.own));
  run_.save_checkpoint(options_.out + "/checkpoints", {}, how);
  saved_at_ = done();
  figures_.checkpointing += now() - begin;
}

void Trainer::finish_checkpoint() {
  const Time begin = now();
  const auto call = access_.call("the end of saving a checkpoint");
  run_.wait_for_checkpoint();
  figures_.checkpointing += now() - begin;
}

void Trainer::report(bool finished) {
  const auto call = access_.call("the report");
  const Totals end = run_.totals();
  figures_.totals.bytes_sent = end.bytes_sent;
  figures_.device = compute_.device().str();
  figures_.device_memory_bytes = compute_.memory_in_use();
  figures_.channels_last = compute_.channels_last();
  const StrategyReport strategy = run_.strategy_report();
  auto summary = summarise(world_, options_, figures_, nlohmann::json::parse(strategy.figures),
                           quality_, done());
  summary[field::kFinished] = finished;
  if (!options_.out.empty() && quality_)
    access_.save(options_.out + "/model.safetensors", [this] { return buffers_now(); });
  traces_.finish(folder_.run_id());
  if (world_.rank() == world_.leader())
    publish(options_, summary, {folder_.run_id(), strategy.summary, end.reordered});
}

}  // namespace skein

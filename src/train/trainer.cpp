#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <thread>
#include <tuple>

#include "core/atomic_file.h"
#include "core/units.h"
#include "keep/checkpoint_files.h"
#include "plan/shares.h"
#include "torch/safetensors.h"
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

std::string joined(const TrainOptions::Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  return text;
}

// Relative to the speed that the emulated step is of; without one, to the fastest worker, which is
// as fast as this machine is.
std::optional<Pace> pace_of(const TrainOptions& options, int rank) {
  const auto& speeds = options.emulate_speeds;
  if (speeds.empty() && options.jitter == 0 && options.slowdowns.every.count() == 0) return {};
  double speed = speeds.empty() ? 1 : speeds[static_cast<std::size_t>(rank)];
  if (!speeds.empty() && options.emulate_step.count() == 0)
    speed /= *std::max_element(speeds.begin(), speeds.end());
  return Pace(speed, options.jitter, options.slowdowns,
              Rng(options.seed).split(0x70616365).split(static_cast<std::uint64_t>(rank)));
}

// How many steps the host may be ahead of a device.
constexpr std::size_t kStepsAhead = 2;

}  // namespace

Trainer::Trainer(World& world, const TrainOptions& options, int local_rank, Time started)
    : world_(world),
      options_(options),
      compute_(options, local_rank),
      data_(open_data(options.data, options.data_settings, options.seed)),
      bar_(clock_, stderr, options.quiet || world.rank() != 0, options.log_every) {
  if (!options.trace.empty()) place_trace(local_rank);
  take_folder();
  const std::int64_t train_size = data_.train->size();
  budget_ = options.samples > 0 ? options.samples : train_size * options.epochs;
  eval_every_ = options.eval_every > 0 ? options.eval_every : train_size;
  torch::manual_seed(options.seed);
  model_ = make_model(options.model, data_.train->sample_shape(), data_.train->classes(),
                      options.model_settings);
  compute_.take(*model_);
  StrategySpec strategy(options.strategy);
  strategy.options = options.strategy_settings;
  strategy.seed(options.seed);
  run_.emplace(distribute(world, *model_, optimizer_of(options, budget_), strategy));
  torch::manual_seed(options.seed + 1000003 * static_cast<std::uint64_t>(world.rank() + 1));
  run_->impl().worker().budget = budget_;
  lockstep_ = run_->impl().strategy().lockstep();
  check_options();
  prefetcher_ = std::make_unique<Prefetcher>(data_.train, compute_.upload());
  Distributed::Impl& run = run_->impl();
  pacer_ = std::make_unique<Pacer>(clock_, run.binding().arena(), options.emulate_step,
                                   options.batch, pace_of(options, world.rank()));
  if (pacer_->active()) {
    run.before_gradient = [this](int slot) { pacer_->gradient_done(slot); };
    run.before_read = [this](int slot) { pacer_->reading(slot); };
    run.after_wait = [this](std::string_view, Duration waited) { pacer_->waited(waited); };
    run.after_reorder = [this, &run] { pacer_->lay_out(run.binding().arena()); };
  }
  world.calls().advise("");  // it is for programs
  if (!options.resume.empty())
    resume();
  else
    open_feed({});
  name_run();
  if (!options.folder().empty() && world.rank() == 0) start_folder();
  start_traces();
  figures_.startup = now() - started;
}

// A pipe or a device may be one on the leader's host only, but all agree on where their parts of
// the trace go: beside it, or to the run's folder, or to that of temporary files, which each host
// has for itself.
void Trainer::place_trace(int local_rank) {
  const auto sums =
      world_.sum_integers({appears_by_rename(options_.trace) ? 0 : 1, local_rank == 0 ? 1 : 0});
  trace_beside_ = sums[0] == 0;
  const bool several_hosts = sums[1] > 1;
  if (!trace_beside_ && several_hosts && options_.folder().empty())
    throw ConfigError(
        "--trace: this is no file, and hosts need a folder that all of them see for their parts of "
        "the trace: expected --out DIR, or the name of a file in such a folder");
}

void Trainer::check_options() {
  if (lockstep_ && options_.data_split == "once")
    throw ConfigError(
        fmt::format("--data-split once: workers of {} share every batch, so each sample comes once "
                    "an epoch already; expected own, or a strategy without lockstep",
                    options_.strategy));
  if (options_.data_split == "once" && run_->impl().strategy().survives_losses())
    throw ConfigError(
        fmt::format("--data-split once: workers of {} go on when one is lost, whose samples nobody "
                    "would visit; "
                    "expected own",
                    options_.strategy));
  if (options_.verify && !run_->impl().strategy().equal_replicas())
    throw ConfigError(fmt::format("--verify: the workers of strategy {} have models of their own",
                                  options_.strategy));
  if (options_.bn_recompute > 0 && !has_batch_norm(*model_))
    throw ConfigError(fmt::format("--bn-recompute {}: {} has no batch norm; leave the option out",
                                  options_.bn_recompute, options_.model));
}

void Trainer::open_feed(const Feed::Start& start) {
  const Draw draw = lockstep_                       ? Draw::together
                    : options_.data_split == "once" ? Draw::queued
                                                    : Draw::alone;
  feed_ = std::make_unique<Feed>(
      world_, run_->impl().worker().queue_channel(),
      FeedPlan{data_.train->size(), step_batch(), budget_, options_.seed, draw}, start);
}

std::map<std::string, std::string> Trainer::identity() const {
  std::map<std::string, std::string> all{
      {"model", options_.model},
      {"model settings", joined(options_.model_settings)},
      {"data", options_.data},
      {"data settings", joined(options_.data_settings)},
      {"optimizer", options_.optimizer},
      {lockstep_ ? "global batch" : "batch of a worker", std::to_string(step_batch())},
      {"seed", std::to_string(options_.seed)}};
  if (!lockstep_) all["data split"] = options_.data_split;
  return all;
}

void Trainer::resume() {
  const auto checkpoint =
      find_checkpoint(world_, options_.resume, [this](const std::string& line) { warn(line); });
  const TrainingState state = load_checkpoint(checkpoint, run_->impl(), identity());
  position_ = state.position;
  open_feed({position_, state.queue});
  saved_at_ = state.progress.samples;
  resumed_id_ = state.run_id;
  bar_.say(fmt::format("resumed from {}", checkpoint.string()));
  if (done() >= budget_)
    warn(fmt::format(
        "{} has trained on {} samples already, and this run is of {}: nothing is left to train. "
        "--samples and --epochs count from the beginning; --samples {} would train on {} more",
        checkpoint.string(), done(), budget_, done() + budget_, budget_));
}

// Also with --quiet.
void Trainer::warn(const std::string& line) const {
  if (world_.rank() == 0) fmt::print(stderr, "skein train: {}\n", line);
}

// The run that is continued in its own folder, or a new one, as rank 0 says.
void Trainer::name_run() {
  if (continues_run(options_.out, options_.resume)) {
    run_id_ = resumed_id_.empty() ? read_run(options_.out).id : resumed_id_;
    if (!run_id_.empty()) return;
  }
  std::random_device random;
  const auto drawn = static_cast<std::uint64_t>(random()) << 32 | random();
  const std::int64_t own = world_.rank() == 0 ? std::bit_cast<std::int64_t>(drawn) : 0;
  run_id_ = run_id(std::bit_cast<std::uint64_t>(world_.sum_integers({own}).front()));
}

// When the folder is this run's: rank 0 may have removed another's from it.
void Trainer::start_traces() {
  if (options_.timeline) world_.barrier();
  if (!options_.trace.empty()) {
    recorder_ = std::make_unique<TraceRecorder>(world_.rank());
    trace_.add(*recorder_);
  }
  if (options_.timeline) {
    std::function<std::int64_t()> device_bytes;
    if (compute_.on_gpu()) device_bytes = [this] { return compute_.memory_in_use(); };
    timeline_ = std::make_unique<TimelineWriter>(options_.folder(), world_.rank(), device_bytes);
    trace_.add(*timeline_);
  }
  if (!trace_.empty()) run_->impl().trace_to(&trace_);
  if (!options_.tensorboard.empty() && world_.rank() == 0)
    events_.emplace(options_.tensorboard, run_->steps() > 0 ? run_->steps() + 1 : 0);
  shown_samples_ = static_cast<double>(done());
}

// The workers of an attempt before this one may be about to end still. All meet after each try of
// rank 0, so that nobody takes it for lost while it waits.
void Trainer::wait_for_folder() {
  constexpr auto kPause = std::chrono::milliseconds(50);
  const Time until = now() + std::max<Duration>(options_.deadline / 2, options_.outlived);
  for (bool waiting = true; waiting;) {
    const bool held = world_.rank() == 0 && now() < until && is_held(run_lock(options_.out));
    if (held) std::this_thread::sleep_for(kPause);
    waiting = world_.sum_integers({held ? 1 : 0}).front() > 0;
  }
}

// One that is still there when that time is over may stay for ever.
void Trainer::retake_folder() {
  const auto holder = folder_lock_.take(run_lock(options_.out), "");
  if (!holder) return;
  folder_lock_ = join_left_behind(options_.out, *holder);
  warn(
      fmt::format("--out {}: a lost worker ({}) has the lock of the folder still; the run goes on "
                  "beside it",
                  options_.out, holder->text()));
}

// Before anything in it is read or written. All workers hold it, so that it stays this run's when
// one is lost that writes there.
void Trainer::take_folder() {
  const std::filesystem::path out = options_.folder();
  if (out.empty()) return;
  const bool restarted = options_.restarts_json != "[]";
  if (restarted) wait_for_folder();
  std::exception_ptr failed;
  if (world_.rank() == 0) try {
      if (!restarted)
        folder_lock_ = skein::take_folder(out, run_lock(out));
      else
        retake_folder();
      if (options_.out.empty()) {
      } else if (!options_.resume_auto) {
        check_contents(out, options_.resume, options_.overwrite);
      } else if (options_.resume.empty() && !checkpoints_in(out).empty()) {
        throw ConfigError(fmt::format(
            "--resume auto: another run has saved in {} since this one was started; start it again",
            out.string()));
      }
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
  world_.impl().agree_on_success("taking the folder of the run", failed);
  if (world_.rank() != 0) folder_lock_.join(run_lock(out));
  if (!folder_lock_.missing().empty())
    warn(
        fmt::format("{}: its file system has no locks ({}): nothing keeps another run from "
                    "writing there",
                    out.string(), folder_lock_.missing()));
}

// The one that wrote for all has been lost: metrics and events go on from this worker.
void Trainer::lead_folder() {
  if (folder_lock_.leads() || options_.folder().empty() || !leads()) return;
  folder_lock_.lead(run_id_);
  metrics_ = MetricsFile(options_.folder() + "/metrics.jsonl");
  metrics_.write({{"kind", "leader"},
                  {"rank", world_.rank()},
                  {"started", utc_now()},
                  {"step", run_->steps()},
                  {"samples", done()}});
  if (!options_.tensorboard.empty()) events_.emplace(options_.tensorboard, run_->steps() + 1);
}

void Trainer::start_folder() {
  const std::filesystem::path out = options_.folder();
  RunRecord record{run_id_, utc_now(), resumed_id_, options_.version, options_.config_json};
  if (continues_run(out, options_.resume)) {
    const RunRecord before = read_run(out);
    if (!before.started.empty()) record.started = before.started;
    record.resumed_from = before.resumed_from;
    for (const std::string& name : set_aside_later(out / "checkpoints", saved_at_))
      warn(fmt::format("checkpoint {} was made later: it is set-aside-{} now", name, name));
  } else if (options_.overwrite) {
    remove_run(out);
  }
  std::filesystem::remove(out / "summary.json");  // of an earlier end
  write_run(out, record);
  folder_lock_.name(run_id_);
  metrics_ = MetricsFile(out / "metrics.jsonl");
  nlohmann::json line{{"kind", "run"},
                      {"run_id", run_id_},
                      {"started", utc_now()},
                      {"strategy", options_.strategy},
                      {"workers", world_.size()},
                      {"device", compute_.device().str()},
                      {"precision", options_.precision},
                      {"step", run_->steps()},
                      {"samples", done()},
                      {"budget", budget_}};
  if (!options_.resume.empty()) line["resumed_from"] = resumed_id_;
  metrics_.write(line);
}

// Of all workers in lockstep, else of this one.
std::int64_t Trainer::step_batch() const {
  const int workers = options_.batch_workers > 0 ? options_.batch_workers : world_.size();
  return options_.batch * options_.accumulate * (lockstep_ ? workers : 1);
}

Feed::Step Trainer::next_step(std::int64_t done) {
  return done >= budget_ ? Feed::Step{} : feed_->next(budget_ - done);
}

Trainer::Part Trainer::own_part(const Feed::Step& step) {
  Part part;
  Share share{0, std::ssize(step.indices)};
  if (lockstep_) share = share_of(run_->impl().strategy().split(share.count), world_.rank());
  part.samples = share.count;
  auto next = step.indices.begin() + share.begin;
  for (const std::int64_t count : even_shares(part.samples, options_.accumulate)) {
    if (count > 0) part.pieces.emplace_back(next, next + count);
    next += count;
  }
  return part;
}

// Workers that count for themselves may be a step apart: what all take down is the mean.
std::int64_t Trainer::agreed_samples() {
  if (run_->impl().strategy().equal_replicas()) return done();
  const auto sums = world_.sum_integers({done(), 1});
  return sums[0] / sums[1];
}

// Workers without rounds learn of the end at different steps: one may come to it while another
// comes to a mark. All come here before either, and see how many of how many are at the end.
std::pair<std::int64_t, std::int64_t> Trainer::meet(bool at_the_end) {
  if (!run_->impl().strategy().survives_losses()) return {at_the_end ? 1 : 0, 1};
  const auto sums = world_.sum_integers({at_the_end ? 1 : 0, 1});
  return {sums[0], sums[1]};
}

// What is due, in the order of the marks: the same on all workers, who come to them one by one. A
// mark that one does not come to any more is nobody's.
// Returns whether the target was reached.
bool Trainer::evaluate_and_save() {
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
      if (whole && options_.target_accuracy > 0 && evaluation_.accuracy >= options_.target_accuracy)
        return true;
    }
  }
  return false;
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
  if (!options_.quiet && world_.rank() == 0 && done() == 0) {
    const auto parameters = static_cast<double>(run_->impl().binding().arena().size());
    bar_.say(fmt::format("{} ({} parameters) on {}, {} worker{}, strategy {}, {} samples{}{}",
                         options_.model, print_count(parameters), data_.name, world_.size(),
                         world_.size() == 1 ? "" : "s", options_.strategy, budget_,
                         compute_.on_gpu() ? ", " + compute_.device().str() : "",
                         options_.precision == "f32" ? "" : ", " + options_.precision));
  }
  Worker& worker = run_->impl().worker();
  next_ = next_step(done());
  evaluations_ = Marks(eval_every_, done());
  checkpoints_ = Marks(options_.checkpoint_every, done());
  bool reached = false;
  Duration last_update{};  // in training time
  while (done() < budget_ && !worker.all_stop && !reached) {
    const std::int64_t before = done(), steps = run_->steps();
    const Time begin = now();
    // Shares may follow measured speeds, so the next step's are only a guess, good for loading
    // early.
    const Feed::Step step = std::move(next_);
    next_ = next_step(lockstep_ ? before + std::ssize(step.indices) : before);
    step_name_ = step.block < 0 ? "" : fmt::format(" {}", step.block);
    const Part part = own_part(step);
    const Part upcoming = own_part(next_);
    train_step(part, upcoming);
    if (compute_.on_gpu()) settle_losses(kStepsAhead - 1);
    position_ = step.after;
    figures_.training += now() - begin;
    const bool updated = run_->steps() > steps;
    if (updated) {
      figures_.iteration_ms.push_back(milliseconds(figures_.training - last_update));
      last_update = figures_.training;
      ++figures_.iterations;
      log_step();
      if (options_.verify) run_->impl().replicas().verify();
    }
    reached = evaluate_and_save();
    if (updated && smooth_loss_ >= 0) bar_.update(progress());
  }
  if (worker.all_stop && done() < budget_) bar_.say("stopping as asked: saving");
  catch_up();
  figures_.exposed = run_->impl().time().waiting();
  const Time flushing = now();
  wait_for_the_end();
  run_->flush();
  figures_.flush = now() - flushing;
  show(Lane::wait, "flush", flushing);
  const bool apart = !run_->impl().strategy().equal_replicas();
  const auto [finished, leaving] = agree_on_the_end(done() >= budget_ || reached);
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
  if (leaving) evaluated_at_ = -1;  // not as the model is now
  if (!finished)
    bar_.say(fmt::format("stopped at {} of {} samples{}", done(), budget_,
                         options_.out.empty() ? "" : ": a checkpoint is saved"));
  feed_->close();
  report(finished);
  return finished;
}

void Trainer::train_step(const Part& part, const Part& upcoming) {
  run_->accumulate(static_cast<int>(std::max<std::size_t>(1, part.pieces.size())));
  run_->expect(part.samples);
  const WorkerTime& time = run_->impl().time();
  const Duration updated = time.updating();
  if (part.samples > 0) step_loss_ = torch::Tensor();
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const double weight =
        static_cast<double>(part.pieces[i].size()) / static_cast<double>(part.samples);
    const Indices* next = i + 1 < part.pieces.size() ? &part.pieces[i + 1]
                          : upcoming.pieces.empty()  ? nullptr
                                                     : &upcoming.pieces.front();
    micro_batch(part.pieces[i], next, weight);
  }
  if (part.samples > 0) loss_ = LateNumber(step_loss_);
  run_->step(part.samples);
  figures_.busy += time.updating() - updated;
  figures_.samples += part.samples;
  figures_.micro_batches += std::ssize(part.pieces);
}

torch::Tensor Trainer::forward(const Batch& batch) {
  const Autocast precision = compute_.autocast();
  return loss_of(model_->forward(batch.data), batch.target);
}

void Trainer::micro_batch(const Indices& indices, const Indices* next, double weight) {
  Board& board = world_.impl().board();
  board.set_phase(Phase::data);
  const Time loading = now();
  const Batch batch = prefetcher_->take(indices);
  if (next) prefetcher_->request(*next);
  board.set_phase(Phase::forward);
  const Time begin = now();
  const WorkerTime& time = run_->impl().time();
  const Duration waited = time.waiting(), updated = time.updating();
  pacer_->begin(std::ssize(indices), updated - std::exchange(paced_update_, updated));
  torch::Tensor loss = forward(batch);
  if (weight != 1) loss = loss * weight;
  if (pacer_->active()) compute_.finish();
  pacer_->forward_done();
  const Time middle = now();
  board.set_phase(Phase::backward);
  loss.backward();
  if (pacer_->active()) compute_.finish();
  pacer_->backward_done();
  const Time end = now();
  figures_.busy += end - begin - (time.waiting() - waited) - (time.updating() - updated);
  const torch::Tensor value = loss.detach().to(torch::kFloat64);
  step_loss_ = step_loss_.defined() ? step_loss_ + value : value;
  if (trace_.empty()) return;
  WorkerTime& trace = run_->impl().time();
  trace.span(Lane::loading, "loading", loading, begin);
  trace.span(Lane::forward, "forward" + step_name_, begin, middle);
  trace.span(Lane::backward, "backward", middle, end);
}

// From `begin` until now, where anybody looks.
void Trainer::show(Lane lane, const std::string& name, Time begin) {
  if (!trace_.empty()) run_->impl().time().span(lane, name, begin, now());
}

ProgressFigures Trainer::progress() const {
  return {done(),
          budget_,
          run_->steps(),
          smooth_loss_,
          run_->learning_rate(),
          evaluated_at_ >= 0 ? evaluation_.accuracy : -1};
}

// The line of a step is written when its loss has come: on the host at once.
void Trainer::log_step() {
  if (timeline_) timeline_->step_done(run_->steps(), now());
  const Duration exposed = run_->impl().time().waiting();
  nlohmann::json line{{"kind", "step"},
                      {"step", run_->steps()},
                      {"samples", done()},
                      {"seconds", seconds(figures_.training)},
                      {"learning_rate", run_->learning_rate()},
                      {"iteration_ms", figures_.iteration_ms.back()},
                      {"exposed_comm_ms", milliseconds(exposed - logged_exposed_)}};
  run_->impl().look_at([&](const Strategy& strategy) { line.update(strategy.step_figures()); });
  logged_exposed_ = exposed;
  lead_folder();
  logged_.push_back({loss_, std::move(line)});
  if (!compute_.on_gpu()) settle_losses(0);
}

// Of all steps but the newest `left`, for which it waits: so the host is not too far ahead.
void Trainer::settle_losses(std::size_t left) {
  while (logged_.size() > left) {
    const double loss = logged_.front().loss.value();
    nlohmann::json line = std::move(logged_.front().line);
    logged_.pop_front();
    if (std::isnan(loss) || std::isinf(loss))
      throw Error(fmt::format("the loss is {} at step {}: try a smaller --lr, or --clip", loss,
                              line["step"].get<std::int64_t>()));
    smooth_loss_ = smooth_loss_ < 0 ? loss : 0.9 * smooth_loss_ + 0.1 * loss;
    line["loss"] = loss;
    metrics_.write(line);
    if (events_) show_step(line);
  }
}

void Trainer::show_step(const nlohmann::json& line) {
  const auto step = line["step"].get<std::int64_t>();
  for (const char* name : {"loss", "learning_rate", "exposed_comm_ms", "consensus_distance"})
    if (line.contains(name) && line[name].is_number())
      events_->scalar(name, step, line[name].get<double>());
  const double samples = line["samples"].get<double>(), seconds = line["seconds"].get<double>();
  if (seconds > shown_seconds_)
    events_->scalar("samples_per_second", step,
                    (samples - shown_samples_) / (seconds - shown_seconds_));
  shown_samples_ = samples;
  shown_seconds_ = seconds;
}

// Waits for the steps that a device has not done yet, which are training, too.
void Trainer::catch_up() {
  const Time begin = now();
  settle_losses(0);
  compute_.finish();
  figures_.training += now() - begin;
}

// As an evaluation and the final model need them; with replicas that are equal.
std::vector<NamedTensor> Trainer::buffers_now() {
  if (options_.bn_recompute == 0) return run_->impl().averages().buffers();
  return fresh_buffers(run_->impl(), *model_, compute_, *data_.train,
                       {options_.bn_recompute, options_.batch, options_.seed});
}

void Trainer::save_model() {
  run_->flush();
  const auto tensors = run_->impl().averages().tensors_to_save(buffers_now());
  world_.impl().write_once(
      [&] { write_safetensors(options_.out + "/model.safetensors", tensors); });
}

bool Trainer::evaluate_now(const std::function<bool()>& stop) {
  const Time begin = now();
  const Workers::Calls::Scope call(world_.calls(), "an evaluation");
  lead_folder();
  const auto found = evaluate(
      run_->impl(), *model_, compute_, *data_.test, [this] { return buffers_now(); }, stop);
  figures_.evaluation += now() - begin;
  if (!found) return false;
  evaluation_ = *found;
  evaluated_at_ = done();
  if (options_.target_accuracy > 0 && figures_.target_seconds < 0 &&
      evaluation_.accuracy >= options_.target_accuracy)
    figures_.target_seconds = seconds(figures_.training);
  metrics_.write({{"kind", "evaluation"},
                  {"step", run_->steps()},
                  {"samples", done()},
                  {"seconds", seconds(figures_.training)},
                  {"loss", evaluation_.loss},
                  {"accuracy", evaluation_.accuracy}});
  if (events_) {
    events_->scalar("accuracy", run_->steps(), evaluation_.accuracy);
    events_->scalar("evaluation_loss", run_->steps(), evaluation_.loss);
  }
  return true;
}

void Trainer::checkpoint_now() {
  const Time begin = now();
  const Workers::Calls::Scope call(world_.calls(), "the saving of a checkpoint");
  lead_folder();
  run_->flush();  // may apply what was on its way, and count it
  TrainingState state{run_->impl().worker().progress, position_, {}, identity(), run_id_};
  state.progress.samples = agreed_samples();
  state.queue = feed_->settled();
  if (next_.block >= 0) state.queue.held.insert(state.queue.held.begin(), next_.block);
  save_checkpoint(options_.out, run_->impl(), state, options_.keep_checkpoints);
  saved_at_ = state.progress.samples;
  figures_.checkpointing += now() - begin;
}

void Trainer::finish_checkpoint() {
  const Time begin = now();
  const Workers::Calls::Scope call(world_.calls(), "the end of saving a checkpoint");
  run_->wait_for_checkpoint();
  figures_.checkpointing += now() - begin;
}

void Trainer::report(bool finished) {
  const Workers::Calls::Scope call(world_.calls(), "the report");
  Distributed::Impl& run = run_->impl();
  figures_.bytes_sent = world_.impl().fabric().bytes_sent();
  figures_.device = compute_.device().str();
  figures_.device_memory_bytes = compute_.memory_in_use();
  figures_.channels_last = compute_.channels_last();
  std::int64_t parameters = 0;
  for (const Slot& slot : run.binding().arena().slots())
    parameters += static_cast<std::int64_t>(slot.range.count);
  nlohmann::json own;
  std::string more;
  run.look_at([&](const Strategy& strategy) {
    own = strategy.figures();
    more = strategy.summary();
  });
  const bool evaluated = evaluated_at_ >= 0;
  auto summary =
      summarise(world_, options_, figures_, own,
                evaluated ? std::optional(evaluation_) : std::nullopt, done(), parameters);
  summary["finished"] = finished;
  if (!options_.out.empty() && evaluated) save_model();
  if (recorder_) {
    const std::filesystem::path stem = trace_beside_ ? std::filesystem::path(options_.trace)
                                       : options_.folder().empty()
                                           ? TraceRecorder::stem_apart(run_id_)
                                           : std::filesystem::path(options_.folder()) / "trace";
    recorder_->write_part(stem);
    world_.barrier();
    if (leads()) TraceRecorder::join_parts(stem, world_.size(), options_.trace);
  }
  if (!leads()) return;
  fmt::print("{}\n", summary_text(summary));
  if (!more.empty()) fmt::print("{}\n", more);
  std::fflush(stdout);
  if (!options_.folder().empty())
    write_whole(options_.folder() + "/summary.json", summary.dump(2) + "\n");
  if (!options_.json.empty()) {
    auto json = summary;
    json["command"] = options_.command;
    json["run_id"] = run_id_;
    json["restarts"] = nlohmann::json::parse(options_.restarts_json);
    json["version"] = options_.version;
    json["seed"] = options_.seed;
    json["config"] = nlohmann::json::parse(options_.config_json);
    json["figures"]["reordered"] = run.binding().reordered();
    write_whole(options_.json, json.dump(2) + "\n");
  }
}

}  // namespace skein

#include "train/job_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "core/field_names.h"
#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "observe/json_text.h"

namespace skein {

JobFolder::JobFolder(World& world, const TrainOptions& options) : world_(world), options_(options) {
  const std::filesystem::path out = options.folder();
  if (out.empty()) return;
  const bool restarted = options.restarts_json != "[]";
  if (restarted) wait_for_folder();
  world.once(
      [&] {
        if (!restarted)
          lock_ = take_folder(out, run_lock(out));
        else
          retake();
        if (options.out.empty()) {
        } else if (!options.resume_auto) {
          check_contents(out, options.resume, options.overwrite);
        } else if (options.resume.empty() && !checkpoints_in(out).empty()) {
          throw ConfigError(fmt::format(
              "--resume auto: another run has saved in {} since this one was started; start it "
              "again",
              out.string()));
        }
      },
      "taking the folder of the run");
  if (world.rank() != 0) lock_.join(run_lock(out));
  if (!lock_.missing().empty())
    warn(
        fmt::format("{}: its file system has no locks ({}): nothing keeps another run from "
                    "writing there",
                    out.string(), lock_.missing()));
}

// The workers of an attempt before this one may be about to end still. All meet after each try of
// rank 0, so that nobody takes it for lost while it waits.
void JobFolder::wait_for_folder() {
  constexpr auto kPause = std::chrono::milliseconds(50);
  const SteadyClock clock;
  const Time until = clock.now() + std::max<Duration>(options_.deadline / 2, options_.outlived);
  for (bool waiting = true; waiting;) {
    const bool held = world_.rank() == 0 && clock.now() < until && is_held(run_lock(options_.out));
    if (held) std::this_thread::sleep_for(kPause);
    waiting = world_.sum_integers({held ? 1 : 0}).front() > 0;
  }
}

// One that is still there when that time is over may stay for ever.
void JobFolder::retake() {
  const auto holder = lock_.take(run_lock(options_.out), "");
  if (!holder) return;
  lock_ = join_left_behind(options_.out, *holder);
  warn(
      fmt::format("--out {}: a lost worker ({}) has the lock of the folder still; the run goes on "
                  "beside it",
                  options_.out, holder->text()));
}

void JobFolder::name_run(const std::string& resumed) {
  if (continues_run(options_.out, options_.resume)) {
    run_id_ = resumed.empty() ? read_run(options_.out).id : resumed;
    if (!run_id_.empty()) return;
  }
  std::random_device random;
  const auto drawn = static_cast<std::uint64_t>(random()) << 32 | random();
  run_id_ = skein::run_id(std::bit_cast<std::uint64_t>(
      world_.broadcast_integers({std::bit_cast<std::int64_t>(drawn)}).front()));
}

void JobFolder::start(const Start& start) {
  if (world_.rank() != 0) return;
  if (!options_.folder().empty()) start_files(start);
  if (!options_.tensorboard.empty())
    events_.emplace(options_.tensorboard, start.steps > 0 ? start.steps + 1 : 0);
}

void JobFolder::start_files(const Start& start) {
  const std::filesystem::path out = options_.folder();
  RunRecord record{run_id_, utc_now(), start.resumed_id, options_.version, options_.config_json};
  if (continues_run(out, options_.resume)) {
    const RunRecord before = read_run(out);
    if (!before.started.empty()) record.started = before.started;
    record.resumed_from = before.resumed_from;
    for (const std::string& name : set_aside_later(out / "checkpoints", start.resumed_at))
      warn(fmt::format("checkpoint {} was made later: it is set-aside-{} now", name, name));
  } else if (options_.overwrite) {
    remove_run(out);
  }
  std::filesystem::remove(out / "summary.json");  // of an earlier end
  write_run(out, record);
  lock_.name(run_id_);
  metrics_.emplace(out / "metrics.jsonl");
  nlohmann::json line{{field::kKind, field::kRunKind},
                      {field::kRunId, run_id_},
                      {field::kStarted, utc_now()},
                      {field::kStrategy, options_.strategy},
                      {field::kWorkers, world_.size()},
                      {field::kDevice, start.device},
                      {field::kPrecision, options_.precision},
                      {field::kStep, start.steps},
                      {field::kSamples, start.samples},
                      {field::kBudget, start.budget}};
  if (!options_.resume.empty()) line[field::kResumedFrom] = start.resumed_id;
  write(line);
}

void JobFolder::lead(std::int64_t steps, std::int64_t samples) {
  if (lock_.leads() || options_.folder().empty() || world_.rank() != world_.leader()) return;
  lock_.lead(run_id_);
  metrics_.emplace(options_.folder() + "/metrics.jsonl");
  write({{field::kKind, field::kLeaderKind},
         {field::kRank, world_.rank()},
         {field::kStarted, utc_now()},
         {field::kStep, steps},
         {field::kSamples, samples}});
  if (!options_.tensorboard.empty()) events_.emplace(options_.tensorboard, steps + 1);
}

void JobFolder::write(const nlohmann::json& line) {
  if (metrics_) metrics_->write_json(text_of(line));
}

void JobFolder::warn(const std::string& line) const {
  if (world_.rank() == 0) fmt::print(stderr, "skein train: {}\n", line);
}

}  // namespace skein

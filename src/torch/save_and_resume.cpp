// run.save_checkpoint() and run.resume(): what a program's folder of checkpoints is, and whose.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <random>

#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "torch/checkpoints.h"
#include "torch/run_state.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string> identity_of(Distributed::Impl& run) {
  return {{"optimizer state", kind_of_state(run)}};
}

// Where other workers saved it, or another number of them, rank 0's serves all. A checkpoint
// without an average leaves it to begin anew.
void restore_ema(Distributed::Impl& run, const fs::path& checkpoint,
                 const std::optional<SafeTensors>& own) {
  if (!run.ema()) return;
  const std::int64_t steps = run.worker().progress.steps;
  const fs::path first = own_file(checkpoint, 0);
  if (own ? run.ema()->restore(*own, steps)
          : fs::exists(first) && run.ema()->restore(read_safetensors(first), steps))
    return;
  run.ema()->see(steps);
  if (run.world().rank() == run.world().impl().leader())
    fmt::print(stderr, "skein: {} has no moving average of this model: it begins anew\n",
               checkpoint.string());
}

void check_keep(int keep) {
  if (keep < 1)
    throw ConfigError(
        fmt::format("save_checkpoint(): keep = {}; expected at least 1 checkpoint", keep));
}

}  // namespace

Checkpoints& Distributed::Impl::checkpoints() {
  if (!checkpoints_) checkpoints_ = std::make_unique<Checkpoints>(*this);
  return *checkpoints_;
}

// Checkpoints of others, or of another start that this one did not go on from, would be taken for
// this run's, and removed as its old ones.
void ProgramFolder::take(const fs::path& folder, bool survives_losses) {
  fs::create_directories(folder);
  const fs::path real = fs::canonical(folder);
  const auto taken = taken_.find(real);
  if (taken != taken_.end() && taken->second.valid()) return;
  const bool mine = taken != taken_.end();  // by one that led before this worker
  const auto before = numbered_in(real);
  const auto resumed = resumed_.find(real);
  if (!mine && !before.empty() && resumed == resumed_.end())
    throw ConfigError(fmt::format(
        "save_checkpoint(\"{0}\"): there are checkpoints already, the newest of {1} samples, and "
        "this run did not begin with resume(\"{0}\"); expected that, or another folder",
        folder.string(), samples_of(before.back())));
  FileDescriptor lock(::open(real.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Who was stopped and left behind may hold it still. What cannot be locked is not.
  if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK &&
      !survives_losses)
    throw ConfigError(
        fmt::format("save_checkpoint(\"{}\"): another run saves there now; expected another folder",
                    folder.string()));
  if (!mine && resumed != resumed_.end())
    for (const std::string& name : set_aside_later(real, resumed->second))
      fmt::print(stderr, "skein: checkpoint {0}/{1} was passed over: it is set-aside-{1} now\n",
                 folder.string(), name);
  taken_[real] = std::move(lock);
}

void ProgramFolder::taken_by_leader(const fs::path& folder) {
  std::error_code unseen;
  const fs::path real = fs::canonical(folder, unseen);
  if (!unseen) taken_.try_emplace(real);
}

void ProgramFolder::resumed(const fs::path& checkpoint, std::int64_t samples) {
  resumed_[fs::canonical(checkpoint).parent_path()] = samples;
}

void Distributed::save_checkpoint(const std::string& folder, const Values& values,
                                  const CheckpointOptions& options) {
  Impl& run = *impl_;
  check_keep(options.keep);
  check_values(values);
  if (run.in_step())
    throw ConfigError(
        "save_checkpoint() came between backward() and step(): call it after step(), when the "
        "gradients have been used");
  Checkpoints& checkpoints = run.checkpoints();
  checkpoints.finish();
  flush();
  const Progress& progress = run.worker().progress;
  Checkpoints::Save save;
  save.state.samples = progress.samples;
  save.state.steps = progress.steps;
  save.state.reference = progress.reference;
  save.state.identity = identity_of(run);
  save.state.values = values;
  if (run.ema()) save.own = run.ema()->state();
  save.keep = options.keep;
  save.wait = options.wait;
  save.prepare = [&] {
    checkpoints.folder.take(folder, run.strategy().survives_losses());
    std::random_device random;
    if (checkpoints.run_id.empty())
      checkpoints.run_id = skein::run_id(static_cast<std::uint64_t>(random()) << 32 | random());
  };
  save.prepared = [&] { checkpoints.folder.taken_by_leader(folder); };
  checkpoints.save(folder, std::move(save));
  run.after_flush();
}

void Distributed::wait_for_checkpoint() { impl_->checkpoints().finish(); }

Resumed Distributed::resume(const std::string& folder) {
  Impl& run = *impl_;
  const PhaseScope phase(run.world().impl().board(), Phase::loading);
  if (run.in_step() || steps() > 0 || samples() > 0)
    throw ConfigError(fmt::format(
        "resume(\"{}\") came after {} steps and {} samples: call it after distribute(), before "
        "the first backward()",
        folder, steps(), samples()));
  const bool speaks = run.world().rank() == run.world().impl().leader();
  const fs::path found = find_checkpoint(run.world(), folder, fmt::format("resume(\"{}\")", folder),
                                         [&](const std::string& line) {
                                           if (speaks) fmt::print(stderr, "skein: {}\n", line);
                                         });
  if (found.empty()) return {};
  Checkpoints& checkpoints = run.checkpoints();
  const auto loaded = checkpoints.load(found, identity_of(run));
  restore_ema(run, found, loaded.own);
  checkpoints.folder.resumed(found, loaded.state.samples);
  run.after_flush();
  run.world().impl().board().set_step(steps(), samples());
  Resumed resumed;
  resumed.path = found.string();
  resumed.values = loaded.state.values;
  resumed.workers = loaded.state.workers;
  return resumed;
}

}  // namespace skein

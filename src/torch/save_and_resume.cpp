// run.save_checkpoint() and run.resume(): what a program's folder of checkpoints is, and whose.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "keep/checkpoint_files.h"
#include "keep/run_folder.h"
#include "torch/checkpoints.h"
#include "torch/run_state.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "run.lock";

std::map<std::string, std::string> identity_of(Distributed::Impl& run) {
  return {{"optimizer state", kind_of_state(run)}};
}

// Where workers have equal models, or other workers saved it, or another number of them, rank 0's
// serves all. A checkpoint without an average leaves it to begin anew.
void restore_ema(Distributed::Impl& run, const fs::path& checkpoint,
                 const std::optional<SafeTensors>& own) {
  WeightAverage* const ema = run.averages().ema();
  if (!ema) return;
  const std::int64_t steps = run.worker().progress.steps;
  const fs::path first = own_file(checkpoint, 0);
  if (own && !run.strategy().equal_replicas()
          ? ema->restore(*own, steps)
          : fs::exists(first) && ema->restore(read_safetensors(first), steps))
    return;
  ema->see(steps);
  if (run.world().rank() == run.world().impl().leader())
    fmt::print(stderr, "skein: {} has no moving average of this model: it begins anew\n",
               checkpoint.string());
}

}  // namespace

void check_keep(const char* call, int keep) {
  if (keep < 1)
    throw ConfigError(fmt::format("{}: keep = {}; expected at least 1 checkpoint", call, keep));
}

// Checkpoints of others, or of another start that this one did not go on from, would be taken for
// this run's, and removed as its old ones.
void ProgramFolder::take(const fs::path& folder, const std::string& run_id) {
  fs::create_directories(folder);
  const fs::path real = fs::canonical(folder);
  if (const auto taken = taken_.find(real); taken != taken_.end()) {
    // By this worker, or by one that led before it.
    if (!taken->second.leads()) taken->second.lead(run_id);
    return;
  }
  FolderLock lock;
  if (const auto holder = lock.take(real / kLock, run_id))
    throw ConfigError(fmt::format(
        "save_checkpoint(\"{}\"): another run saves there now ({}); expected another folder",
        folder.string(), holder->text()));
  const auto before = numbered_in(real);
  const auto resumed = resumed_.find(real);
  if (!before.empty() && resumed == resumed_.end())
    throw ConfigError(fmt::format(
        "save_checkpoint(\"{0}\"): there are checkpoints already, the newest of {1} samples, and "
        "this run did not begin with resume(\"{0}\"); expected that, or another folder",
        folder.string(), samples_of(before.back())));
  if (resumed != resumed_.end())
    for (const std::string& name : set_aside_later(real, resumed->second))
      fmt::print(stderr, "skein: checkpoint {0}/{1} was passed over: it is set-aside-{1} now\n",
                 folder.string(), name);
  if (!lock.missing().empty())
    fmt::print(stderr,
               "skein: {}: its file system has no locks ({}): nothing keeps another run from "
               "saving there\n",
               folder.string(), lock.missing());
  taken_[real] = std::move(lock);
}

void ProgramFolder::taken_by_leader(const fs::path& folder) {
  std::error_code unseen;
  const fs::path real = fs::canonical(folder, unseen);
  if (unseen || taken_.contains(real)) return;
  try {
    taken_[real].join(real / kLock);
  } catch (const Error&) {  // a host that may read there and not write
  }
}

void ProgramFolder::resumed(const fs::path& checkpoint, std::int64_t samples) {
  resumed_[fs::canonical(checkpoint).parent_path()] = samples;
}

// The flush comes first: whoever comes to it earlier than others takes part in what those still do.
void Checkpoints::save(const std::string& into, const Values& values,
                       const CheckpointOptions& options) {
  check_keep("save_checkpoint()", options.keep);
  check_values(values);
  auto own = tensors_of(options.own);
  if (run_.in_step())
    throw ConfigError(
        "save_checkpoint() came between backward() and step(): call it after step(), when the "
        "gradients have been used");
  const Workers::Calls::Scope call(
      run_.calls(), options.wait ? "run.save_checkpoint() that waits" : "run.save_checkpoint()");
  run_.flush();
  Save what;
  what.state.samples = run_.worker().progress.samples;
  what.state.steps = run_.worker().progress.steps;
  what.state.batch_reference = run_.worker().progress.batch_reference;
  what.state.round_reference = run_.worker().progress.round_reference;
  what.state.identity = options.identity.empty() ? identity_of(run_) : options.identity;
  what.state.values = values;
  what.own = std::move(own);
  if (WeightAverage* const ema = run_.averages().ema())
    std::ranges::move(ema->state(), std::back_inserter(what.own));
  what.keep = options.keep;
  what.wait = options.wait;
  if (keeper) {
    what.state.data = keeper->data;
  } else {
    what.prepare = [&] {
      std::random_device random;
      if (run_id.empty())
        run_id = skein::run_id(static_cast<std::uint64_t>(random()) << 32 | random());
      folder.take(into, run_id);
    };
    what.prepared = [&] { folder.taken_by_leader(into); };
  }
  save(fs::path(into), std::move(what));
  run_.after_flush();
}

Resumed Checkpoints::resume(const std::string& from, const Values& identity) {
  World& world = run_.world();
  const Workers::Calls::Scope call(run_.calls(), "run.resume()");
  const PhaseScope phase(world.impl().board(), Phase::loading);
  const std::int64_t steps = run_.worker().progress.steps, samples = run_.worker().progress.samples;
  if (run_.in_step() || steps > 0 || samples > 0)
    throw ConfigError(fmt::format(
        "resume(\"{}\") came after {} steps and {} samples: call it after distribute(), before "
        "the first backward()",
        from, steps, samples));
  const bool speaks = world.rank() == world.impl().leader();
  const Say say = [&](const std::string& line) {
    if (speaks) fmt::print(stderr, "skein: {}\n", line);
  };
  const fs::path found =
      find_checkpoint(world, from, keeper ? keeper->resumes : fmt::format("resume(\"{}\")", from),
                      keeper ? keeper->say : say);
  if (found.empty()) return {};
  run_.averages().resumed_from(found.string());
  const auto loaded = load(found, identity.empty() ? identity_of(run_) : identity);
  restore_ema(run_, found, loaded.own);
  folder.resumed(found, loaded.state.samples);
  run_.after_flush();
  run_.periodic().restart();
  world.impl().board().set_step(run_.worker().progress.steps, run_.worker().progress.samples);
  Resumed resumed;
  resumed.path = found.string();
  resumed.values = loaded.state.values;
  resumed.workers = loaded.state.workers;
  if (loaded.own) resumed.own = own_numbers(*loaded.own);
  resumed.run_id = loaded.state.run_id;
  if (keeper) keeper->data = loaded.state.data.value_or(CheckpointState::Data());
  return resumed;
}

void Distributed::save_checkpoint(const std::string& folder, const Values& values,
                                  const CheckpointOptions& options) {
  impl_->checkpoints().save(folder, values, options);
}

Resumed Distributed::resume(const std::string& folder, const Values& identity) {
  return impl_->checkpoints().resume(folder, identity);
}

void Distributed::wait_for_checkpoint() {
  const Workers::Calls::Scope call(impl_->calls(), "run.wait_for_checkpoint()");
  impl_->checkpoints().finish();
}

}  // namespace skein

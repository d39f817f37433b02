#include <fmt/format.h>

#include "keep/checkpoint_files.h"
#include "torch/checkpoints.h"
#include "torch/run_state.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

std::string value_or_none(const std::string& value) { return value.empty() ? "none" : value; }

// What `one` says and `two` does not, or says otherwise; "" for nothing.
std::string first_difference(const std::map<std::string, std::string>& one,
                             const std::map<std::string, std::string>& two) {
  for (const auto& [key, value] : one)
    if (const auto found = two.find(key); found == two.end() || found->second != value)
      return fmt::format("{} = {}", key, value_or_none(value));
  return "";
}

void check_identity(const fs::path& path, const std::map<std::string, std::string>& saved,
                    const std::map<std::string, std::string>& now) {
  // What both have comes first: it has two values to show.
  for (const auto& [key, value] : now)
    if (const auto found = saved.find(key); found != saved.end() && found->second != value)
      throw ConfigError(fmt::format(
          "{} was made with {} = {}, this run has {}: a resumed run must be the same job",
          path.string(), key, value_or_none(found->second), value_or_none(value)));
  const std::string before = first_difference(saved, now), present = first_difference(now, saved);
  if (!before.empty() || !present.empty())
    throw ConfigError(fmt::format("{} was made {}, this run {}: a resumed run must be the same job",
                                  path.string(),
                                  before.empty() ? "without " + present : "with " + before,
                                  present.empty() ? "has none" : "has " + present));
}

// All that is read, and fits.
struct Contents {
  CheckpointState state;
  SafeTensors model;
  std::optional<SafeTensorsFile> optimizer;
  std::optional<SafeTensors> own;
};

Contents read_contents(const fs::path& checkpoint, Distributed::Impl& run,
                       const std::map<std::string, std::string>& identity) {
  Contents contents{read_state(checkpoint), {}, {}, {}};
  check_identity(checkpoint / "state.json", contents.state.identity, identity);
  const fs::path model = checkpoint / "model.safetensors";
  const fs::path optimizer = checkpoint / "optimizer.safetensors";
  const fs::path own = own_file(checkpoint, run.world().rank());
  contents.model = read_safetensors(model);
  try {
    check_fits(run.module(), contents.model);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", model.string(), error.what()));
  }
  const AtRest rest(run);
  contents.optimizer.emplace(optimizer);
  check_optimizer(optimizer, *contents.optimizer, run);
  // One that was lost before the checkpoint was made has left nothing of its own either.
  if (contents.state.workers != run.world().size() || !fs::exists(own)) return contents;
  contents.own = read_safetensors(own);
  check_own(own, *contents.own, run);
  return contents;
}

// What the leader sees, as a list of names in `folder`, the newest last.
std::vector<std::string> names_in(World& world, const fs::path& folder) {
  std::string names;
  if (world.rank() == world.impl().leader()) {
    std::error_code none;
    if (fs::exists(folder / "state.json", none)) {
      names = ".\n";
    } else {
      for (const fs::path& each : numbered_in(checkpoint_folder(folder)))
        names += each.lexically_relative(folder).string() + "\n";
    }
  }
  std::vector<std::string> found;
  for (const std::string& text : world.impl().gather_text(names))
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      found.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  return found;
}

}  // namespace

fs::path find_checkpoint(World& world, const fs::path& folder, const std::string& who,
                         const Say& say) {
  std::string damages;
  const auto names = names_in(world, folder);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const fs::path each = *name == "." ? folder : folder / *name;
    const Inspection own = inspect(each, world.rank(), world.size());
    std::string damage;
    for (const std::string& text : world.impl().gather_text(own.damage))
      if (damage.find(text) == std::string::npos) damage += (damage.empty() ? "" : "; ") + text;
    if (damage.empty() && !own.checksums)
      say(fmt::format("{} has no checksums: an older version of Skein made it", each.string()));
    if (damage.empty()) return each;
    damages += (damages.empty() ? "" : "; ") + damage;
    if (name + 1 != names.rend()) say(fmt::format("{}: taking the one before", damage));
  }
  if (names.empty()) return {};
  throw ConfigError(
      fmt::format("{}: {}{}", who, damages,
                  names.front() == "." ? "; skein checkpoints DIR lists which are whole" : ""));
}

Checkpoints::Loaded Checkpoints::load(const fs::path& checkpoint,
                                      const std::map<std::string, std::string>& identity) {
  std::optional<Contents> contents;
  std::exception_ptr failed;
  try {
    contents.emplace(read_contents(checkpoint, run_, identity));
    run_.check_between_steps("resume()");
    run_.settings().check(contents->state.optimizer, contents->state.steps);
  } catch (const std::exception&) {
    failed = std::current_exception();
  }
  run_.world().impl().agree_on_success("reading the checkpoint", failed);
  CheckpointState& state = contents->state;
  if (run_.strategy().wants_order_of_reads()) lay_out(run_, state.order);
  if (state.ordered) run_.settle_order();
  Progress progress{state.samples, state.steps, state.batch_reference, state.round_reference};
  const AtRest rest(run_);
  load_into_module(run_.module(), contents->model);
  restore_optimizer(*contents->optimizer, run_);
  if (contents->own)
    progress.steps = restore_own(own_file(checkpoint, run_.world().rank()), *contents->own, run_,
                                 progress.steps);
  run_.worker().progress = progress;
  run_.settings().restore(state.optimizer, state.steps);
  if (contents->own) restore_own_missed(*contents->own, run_);
  run_id = state.run_id;
  return {std::move(state), std::move(contents->own)};
}

}  // namespace skein

#include "torch/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "torch/safetensors.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kGenerator = "torch_generator";
constexpr const char* kPosition = "data_position";
constexpr const char* kBlocks = "data_blocks";
constexpr const char* kSteps = "steps";
constexpr const char* kOwnOptimizer = "optimizer/";

// The optimizer's state as planes of the whole model, cut by parameter and with its shape, so that
// it fits any layout of the arena and any number of workers.
std::vector<NamedTensor> optimizer_tensors(Distributed::Impl& run, const OptimizerState& state,
                                           const std::string& prefix = "") {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, plane] : state) {
    const Span whole = plane->span();
    const torch::Tensor flat =
        torch::from_blob(whole.data, {static_cast<std::int64_t>(whole.count)});
    for (int slot = 0; slot < run.binding().slots(); ++slot) {
      const Range range = run.binding().arena().slots()[static_cast<std::size_t>(slot)].range;
      tensors.push_back({prefix + name + "/" + run.binding().names_of_slot(slot).front(),
                         flat.narrow(0, static_cast<std::int64_t>(range.offset),
                                     static_cast<std::int64_t>(range.count))
                             .view(run.binding().parameter(slot).sizes())});
    }
  }
  return tensors;
}

// The parameters' names as they lie in the arena. Sums are rounded in the order in which it is cut,
// so a run that goes on bit for bit must have it from its first step on.
std::vector<std::string> order_of(Distributed::Impl& run) {
  std::vector<std::string> names;
  for (const Slot& slot : run.binding().arena().slots()) names.push_back(slot.name);
  return names;
}

// Names of another module, or none, change nothing: what does not fit is found when tensors are
// read.
void lay_out(Distributed::Impl& run, const std::vector<std::string>& names) {
  const auto present = order_of(run);
  std::vector<int> order;
  for (const std::string& name : names)
    order.push_back(
        static_cast<int>(std::find(present.begin(), present.end(), name) - present.begin()));
  if (std::is_permutation(names.begin(), names.end(), present.begin(), present.end()) &&
      !std::is_sorted(order.begin(), order.end()))
    run.reorder(order);
}

std::vector<NamedTensor> own_tensors(Distributed::Impl& run,
                                     const GlobalBatches::Position& position) {
  std::vector<NamedTensor> tensors;
  for (const auto* buffers : {&run.binding().float_buffers(), &run.binding().integer_buffers()})
    for (const NamedTensor& each : *buffers)
      tensors.push_back({"buffer/" + each.name, each.tensor});
  tensors.push_back({kPosition, torch::tensor({position.epoch, position.offset}, torch::kInt64)});
  tensors.push_back({kGenerator, at::detail::getDefaultCPUGenerator().get_state()});
  return tensors;
}

void copy_all(const fs::path& path, const SafeTensors& file, const std::vector<NamedTensor>& into) {
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& each : into) {
    const torch::Tensor* saved = file.find(each.name);
    if (saved == nullptr || saved->sizes() != each.tensor.sizes() ||
        saved->dtype() != each.tensor.dtype())
      throw ConfigError(
          fmt::format("{}: no '{}' of the right shape and type: this is another job's checkpoint",
                      path.string(), each.name));
    each.tensor.detach().copy_(*saved);
  }
}

torch::Tensor whole_numbers(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers, torch::kInt64);
}

std::vector<std::int64_t> whole_numbers(const SafeTensors& file, const std::string& name) {
  const torch::Tensor* saved = file.find(name);
  if (saved == nullptr || saved->dtype() != torch::kInt64) return {};
  const torch::Tensor flat = saved->reshape({-1}).contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

fs::path rank_path(const fs::path& folder, int rank) {
  return folder / fmt::format("rank-{}.safetensors", rank);
}

void save_own(const fs::path& path, Distributed::Impl& run, const TrainingState& state) {
  auto tensors = own_tensors(run, state.position);
  tensors.push_back({kBlocks, whole_numbers(state.queue.held)});
  OptimizerState optimizer;
  if (!run.strategy().equal_replicas()) {
    tensors.push_back({kSteps, whole_numbers({state.progress.steps})});
    optimizer = own_state(run.optimizer(), run.binding().arena().size());
    for (const NamedTensor& each : optimizer_tensors(run, optimizer, kOwnOptimizer))
      tensors.push_back(each);
  }
  write_safetensors(path, tensors);
}

void load_own(const fs::path& path, Distributed::Impl& run, TrainingState& state) {
  const SafeTensors file = read_safetensors(path);
  auto tensors = own_tensors(run, state.position);
  copy_all(path, file, tensors);
  const torch::Tensor& position = tensors[tensors.size() - 2].tensor;
  state.position = {position[0].item<std::int64_t>(), position[1].item<std::int64_t>()};
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(tensors.back().tensor);
  state.queue.held = whole_numbers(file, kBlocks);
  const auto steps = whole_numbers(file, kSteps);
  if (run.strategy().equal_replicas() || steps.empty()) return;
  state.progress.steps = steps.front();
  const OptimizerState optimizer = own_state(run.optimizer(), run.binding().arena().size());
  copy_all(path, file, optimizer_tensors(run, optimizer, kOwnOptimizer));
  restore_state(run.optimizer(), optimizer);
}

// With another number of workers nobody can go on with the old ones' own state: the averages do,
// and what they had drawn from the queue goes back to it.
void return_blocks(const fs::path& checkpoint, int old_workers, BlockQueue::State& queue) {
  for (int rank = 0; rank < old_workers; ++rank) {
    const auto held = whole_numbers(read_safetensors(rank_path(checkpoint, rank)), kBlocks);
    queue.returned.insert(queue.returned.end(), held.begin(), held.end());
  }
  std::sort(queue.returned.begin(), queue.returned.end());
}

Json read_state(const fs::path& path) {
  std::ifstream file(path);
  if (!file)
    throw ConfigError(fmt::format("cannot read {}: is this a checkpoint folder?", path.string()));
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{} is not JSON: {}", path.string(), error.what()));
  }
}

void check_identity(const fs::path& path, const std::map<std::string, std::string>& saved,
                    const std::map<std::string, std::string>& now) {
  for (const auto& [key, value] : now) {
    const auto found = saved.find(key);
    const std::string before = found == saved.end() ? "" : found->second;
    if (before != value)
      throw ConfigError(fmt::format(
          "{} was made with {} = {}, this run has {}: a resumed run must be the same job",
          path.string(), key, before, value));
  }
}

std::int64_t samples_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string();
  std::int64_t samples = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), samples);
  return code == std::errc() && end == name.data() + name.size() ? samples : -1;
}

std::vector<fs::path> checkpoints_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.is_directory() && samples_of(entry.path()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return samples_of(a) < samples_of(b); });
  return found;
}

// What a worker that died while saving has left.
void remove_unfinished(const fs::path& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("unfinished-")) fs::remove_all(entry.path());
}

}  // namespace

void save_checkpoint(const fs::path& out, Distributed::Impl& run, const TrainingState& state,
                     int keep) {
  World& world = run.world();
  world.impl().board().set_phase(Phase::saving);
  run.flush();
  const auto tensors = run.tensors_to_save();
  const OptimizerState optimizer = run.optimizer_state();
  const bool leads = world.rank() == world.impl().leader();
  const fs::path folder = out / "checkpoints";
  const fs::path unfinished = folder / fmt::format("unfinished-{}", state.progress.samples);
  const fs::path finished = folder / std::to_string(state.progress.samples);
  if (leads) {
    remove_unfinished(folder);
    fs::create_directories(unfinished);
  }
  world.barrier();
  save_own(rank_path(unfinished, world.rank()), run, state);
  if (leads) {
    write_safetensors(unfinished / "model.safetensors", tensors);
    write_safetensors(unfinished / "optimizer.safetensors", optimizer_tensors(run, optimizer));
    const Json json{{"samples", state.progress.samples},
                    {"steps", state.progress.steps},
                    {"reference", state.progress.reference},
                    {"epoch", state.position.epoch},
                    {"offset", state.position.offset},
                    {"next_block", state.queue.next},
                    {"returned_blocks", state.queue.returned},
                    {"workers", world.size()},
                    {"order", order_of(run)},
                    {"identity", state.identity}};
    write_whole(unfinished / "state.json", json.dump(2) + "\n");
  }
  world.barrier();
  if (leads) {
    fs::remove_all(finished);
    fs::rename(unfinished, finished);
    auto all = checkpoints_in(folder);
    for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i)
      fs::remove_all(all[i]);
  }
  world.barrier();
  run.after_flush();
}

fs::path newest_checkpoint(const fs::path& folder) {
  if (fs::exists(folder / "state.json")) return folder;
  const auto all = checkpoints_in(folder / "checkpoints");
  if (all.empty())
    throw ConfigError(
        fmt::format("--resume {}: no checkpoint there (expected {}/checkpoints/SAMPLES/state.json)",
                    folder.string(), folder.string()));
  return all.back();
}

TrainingState load_checkpoint(const fs::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity) {
  const fs::path state_path = checkpoint / "state.json";
  const Json json = read_state(state_path);
  TrainingState state;
  try {
    state.progress = {json.at("samples"), json.at("steps"), json.at("reference")};
    state.position = {json.at("epoch"), json.at("offset")};
    state.queue.next = json.value("next_block", std::int64_t{0});
    state.queue.returned = json.value("returned_blocks", std::vector<std::int64_t>());
    state.identity = json.at("identity");
  } catch (const Json::exception& error) {
    throw ConfigError(fmt::format("{}: {}", state_path.string(), error.what()));
  }
  check_identity(state_path, state.identity, identity);
  if (run.strategy().wants_order_of_reads())
    lay_out(run, json.value("order", std::vector<std::string>()));
  load_into_module(run.module(), read_safetensors(checkpoint / "model.safetensors"));
  const OptimizerState optimizer = run.optimizer_state();
  copy_all(checkpoint / "optimizer.safetensors",
           read_safetensors(checkpoint / "optimizer.safetensors"),
           optimizer_tensors(run, optimizer));
  restore_state(run.optimizer(), optimizer);
  const int workers = json.value("workers", 0);
  // One that was lost before the checkpoint was made has left nothing of its own either.
  if (workers == run.world().size() && fs::exists(rank_path(checkpoint, run.world().rank())))
    load_own(rank_path(checkpoint, run.world().rank()), run, state);
  else if (run.world().rank() == 0)
    return_blocks(checkpoint, workers, state.queue);
  run.worker().progress = state.progress;
  return state;
}

}  // namespace skein

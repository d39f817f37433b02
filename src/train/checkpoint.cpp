#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/atomic_file.h"
#include "data/device_stream.h"
#include "keep/checkpoint_files.h"
#include "keep/checkpoint_state.h"
#include "keep/run_folder.h"
#include "torch/safetensors.h"
#include "torch/torch_stream.h"
#include "train/compute.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr const char* kGenerator = "torch_generator";
constexpr const char* kDeviceGenerator = "device_generator";
constexpr const char* kPosition = "data_position";
constexpr const char* kBlocks = "data_blocks";
constexpr const char* kSteps = "steps";
constexpr const char* kOwnOptimizer = "optimizer/";

torch::Device device_of_run(Distributed::Impl& run) {
  return run.binding().parameter_plane().device();
}

// While it lives a device does nothing but what is done here with torch: what the strategy and the
// model had put on it before is done, and so is what was done here when it ends. The optimizer's
// state is taken and cleared before that, too: it is when it is first asked for.
class AtRest {
 public:
  explicit AtRest(Distributed::Impl& run) : run_(run) { finish(); }
  ~AtRest() {
    try {
      finish();
    } catch (...) {  // a device that has failed is heard of in the next step
    }
  }
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

 private:
  void finish() {
    run_.world().impl().finish([this] { run_.optimizer().state(); });
    finish_stream(device_of_run(run_));
  }

  Distributed::Impl& run_;
};

// The state of an optimizer that owns the whole model, cut by parameter and with its shape, so that
// it fits any layout of the arena. The tensors alias it.
std::vector<NamedTensor> optimizer_tensors(Distributed::Impl& run) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, vector] : run.optimizer().state()) {
    SKEIN_CHECK(vector.count == run.binding().arena().size(), "{} of {} elements of '{}'",
                vector.count, run.binding().arena().size(), name);
    const torch::Tensor flat = tensor_over(vector);
    for (int slot = 0; slot < run.binding().slots(); ++slot) {
      const Range range = run.binding().arena().slots()[static_cast<std::size_t>(slot)].range;
      tensors.push_back({kOwnOptimizer + name + "/" + run.binding().names_of_slot(slot).front(),
                         flat.narrow(0, static_cast<std::int64_t>(range.offset),
                                     static_cast<std::int64_t>(range.count))
                             .view(run.binding().parameter(slot).sizes())});
    }
  }
  return tensors;
}

// Calls visit(name of the tensor in the file, slot) for every parameter of every state vector.
template <typename Visit>
void for_state_tensors(Distributed::Impl& run, Visit visit) {
  for (const auto& [name, vector] : run.optimizer().state())
    for (int slot = 0; slot < run.binding().slots(); ++slot)
      visit(name + "/" + run.binding().names_of_slot(slot).front(), slot);
}

Range range_of(Distributed::Impl& run, int slot) {
  return run.binding().arena().slots()[static_cast<std::size_t>(slot)].range;
}

// Writes those values of a part of a plane that are no gaps.
void write_parameters(const std::vector<Slot>& slots, Range range, Span values,
                      const WriteValues& write) {
  auto slot = std::partition_point(slots.begin(), slots.end(), [&](const Slot& each) {
    return each.range.end() <= range.offset;
  });
  for (; slot != slots.end() && slot->range.offset < range.end(); ++slot) {
    const std::size_t begin = std::max(slot->range.offset, range.offset);
    const std::size_t end = std::min(slot->range.end(), range.end());
    if (begin < end) write(values.at({begin - range.offset, end - begin}));
  }
}

// The same of all workers together, which nobody has as a whole. All call it, the leader writes.
FileSum save_optimizer(const fs::path& path, Distributed::Impl& run) {
  const int leader = run.world().impl().leader();
  if (run.world().rank() != leader) {
    run.stream_optimizer_state(leader, {});
    return {};
  }
  std::vector<TensorShape> tensors;
  for_state_tensors(run, [&](const std::string& name, int slot) {
    tensors.push_back({name, run.binding().parameter(slot).sizes().vec()});
  });
  return stream_safetensors(path, tensors, [&](const WriteValues& write) {
    const auto& slots = run.binding().arena().slots();
    run.stream_optimizer_state(leader, [&](const std::string&, Range range, Span values) {
      write_parameters(slots, range, values, write);
    });
  });
}

void read_into(const SafeTensorsFile& file, const std::string& tensor, std::size_t first,
               Span into) {
  if (into.device.kind != Device::gpu) return file.read(tensor, first, into);
  torch::Tensor host = torch::empty({static_cast<std::int64_t>(into.count)});
  file.read(tensor, first, {host.data_ptr<float>(), into.count});
  tensor_over(into).copy_(host);
}

// Each worker reads what it owns. All look whether everything is there, so that all hear of it.
void load_optimizer(const fs::path& path, Distributed::Impl& run) {
  const SafeTensorsFile file(path);
  for_state_tensors(run, [&](const std::string& name, int slot) {
    if (!file.has(name, run.binding().parameter(slot).sizes()))
      throw ConfigError(
          fmt::format("{}: no '{}' of the right shape and type: this is another job's checkpoint",
                      path.string(), name));
  });
  const OwnedState& owned = run.optimizer().owned_state();
  for (const auto& [name, vector] : run.optimizer().state())
    for (int slot = 0; slot < run.binding().slots(); ++slot) {
      const Range whole = range_of(run, slot);
      const std::string tensor = name + "/" + run.binding().names_of_slot(slot).front();
      for (const Range& own : owned.owned()) {
        const std::size_t begin = std::max(whole.offset, own.offset);
        const std::size_t end = std::min(whole.end(), own.end());
        if (begin < end)
          read_into(file, tensor, begin - whole.offset,
                    vector.at(owned.place_of({begin, end - begin})));
      }
    }
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
  tensors.push_back({kGenerator, generator_of(torch::kCPU).get_state()});
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

FileSum save_own(const fs::path& path, Distributed::Impl& run, const TrainingState& state) {
  auto tensors = own_tensors(run, state.position);
  tensors.push_back({kBlocks, whole_numbers(state.queue.held)});
  if (const torch::Device device = device_of_run(run); !device.is_cpu())
    tensors.push_back({kDeviceGenerator, generator_of(device).get_state()});
  if (!run.strategy().equal_replicas()) {
    tensors.push_back({kSteps, whole_numbers({state.progress.steps})});
    for (const NamedTensor& each : optimizer_tensors(run)) tensors.push_back(each);
  }
  return write_safetensors(path, tensors);
}

void restore_generator(const fs::path& path, torch::Device device, const char* name,
                       const torch::Tensor& saved) {
  auto generator = generator_of(device);
  try {
    generator.set_state(saved);
  } catch (const c10::Error&) {
    throw ConfigError(
        fmt::format("{}: '{}' is no state of torch's random generator", path.string(), name));
  }
}

// A run that was saved on another kind of device has none: this one starts from its seed.
void restore_device_generator(const fs::path& path, const SafeTensors& file, torch::Device device) {
  const torch::Tensor* saved = file.find(kDeviceGenerator);
  if (saved == nullptr || device.is_cpu()) return;
  restore_generator(path, device, kDeviceGenerator, *saved);
}

void load_own(const fs::path& path, Distributed::Impl& run, TrainingState& state) {
  const SafeTensors file = read_safetensors(path);
  auto tensors = own_tensors(run, state.position);
  copy_all(path, file, tensors);
  const torch::Tensor& position = tensors[tensors.size() - 2].tensor;
  state.position = {position[0].item<std::int64_t>(), position[1].item<std::int64_t>()};
  restore_generator(path, torch::kCPU, kGenerator, tensors.back().tensor);
  restore_device_generator(path, file, device_of_run(run));
  state.queue.held = whole_numbers(file, kBlocks);
  const auto steps = whole_numbers(file, kSteps);
  if (run.strategy().equal_replicas() || steps.empty()) return;
  if (steps.front() < 0)
    throw ConfigError(
        fmt::format("{}: {} = {}: expected at least 0", path.string(), kSteps, steps.front()));
  state.progress.steps = steps.front();
  copy_all(path, file, optimizer_tensors(run));
}

// With another number of workers nobody can go on with the old ones' own state: the averages do,
// and what they had drawn from the queue goes back to it.
void return_blocks(const fs::path& checkpoint, int old_workers, BlockQueue::State& queue) {
  for (int rank = 0; rank < old_workers; ++rank) {
    if (!fs::exists(rank_path(checkpoint, rank))) continue;  // it was lost
    const auto held = whole_numbers(read_safetensors(rank_path(checkpoint, rank)), kBlocks);
    queue.returned.insert(queue.returned.end(), held.begin(), held.end());
  }
  std::sort(queue.returned.begin(), queue.returned.end());
}

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

// What a worker that died while saving has left.
void remove_unfinished(const fs::path& folder) {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with("unfinished-")) fs::remove_all(entry.path());
}

// Every worker's file of its own, as the workers that are there have written it.
std::map<std::string, FileSum> own_files(World& world, const FileSum& own) {
  const auto sums = world.gather({static_cast<double>(own.bytes), static_cast<double>(own.crc32c)});
  std::map<std::string, FileSum> files;
  for (std::size_t rank = 0; rank < sums.size(); ++rank)
    if (!sums[rank].empty())
      files[rank_path({}, static_cast<int>(rank)).string()] = {
          static_cast<std::uint64_t>(sums[rank][0]), static_cast<std::uint32_t>(sums[rank][1])};
  return files;
}

CheckpointState file_state(Distributed::Impl& run, const TrainingState& state) {
  return {state.run_id,
          utc_now(),
          state.progress.samples,
          state.progress.steps,
          state.progress.reference,
          state.position.epoch,
          state.position.offset,
          state.queue.next,
          state.queue.returned,
          run.world().size(),
          order_of(run),
          state.identity};
}

}  // namespace

void save_checkpoint(const fs::path& out, Distributed::Impl& run, const TrainingState& state,
                     int keep) {
  World& world = run.world();
  world.impl().board().set_phase(Phase::saving);
  run.flush();
  const auto tensors = run.tensors_to_save();
  const bool leads = world.rank() == world.impl().leader();
  const fs::path folder = out / "checkpoints";
  const std::string name = std::to_string(state.progress.samples);
  const fs::path unfinished = folder / ("unfinished-" + name);
  if (leads) {
    remove_unfinished(folder);
    fs::create_directories(unfinished);
  }
  world.barrier();
  FileSum own, model, progress;
  {
    const AtRest rest(run);
    own = save_own(rank_path(unfinished, world.rank()), run, state);
  }
  const FileSum optimizer = save_optimizer(unfinished / kOptimizer, run);
  if (leads) {
    model = write_safetensors(unfinished / kModel, tensors);
    progress = write_whole(unfinished / kState, print_state(file_state(run, state)));
  }
  auto files = own_files(world, own);  // all have written theirs
  if (leads) {
    files[kModel] = model;
    files[kOptimizer] = optimizer;
    files[kState] = progress;
    write_checksums(unfinished, files);
    publish_folder(unfinished, folder / name);
    remove_older(out, keep);
  }
  world.barrier();
  run.after_flush();
}

fs::path find_checkpoint(World& world, const fs::path& folder, const Say& say) {
  const bool named = fs::exists(folder / kState);
  std::vector<fs::path> all = named ? std::vector{folder} : checkpoints_in(folder);
  if (all.empty())
    throw ConfigError(
        fmt::format("--resume {}: no checkpoint there (expected {}/checkpoints/SAMPLES/state.json)",
                    folder.string(), folder.string()));
  std::string damages;
  for (auto each = all.rbegin(); each != all.rend(); ++each) {
    const Inspection own = inspect(*each, world.rank(), world.size());
    std::string damage;
    for (const std::string& text : world.impl().gather_text(own.damage))
      damage += (damage.empty() || text.empty() ? "" : "; ") + text;
    if (damage.empty() && !own.checksums)
      say(fmt::format("{} has no checksums: an older version of Skein made it", each->string()));
    if (damage.empty()) return *each;
    damages += (damages.empty() ? "" : "; ") + damage;
    if (each + 1 != all.rend()) say(fmt::format("{}: taking the one before", damage));
  }
  throw ConfigError(fmt::format("--resume {}: {}{}", folder.string(), damages,
                                named ? "; skein checkpoints DIR lists which are whole" : ""));
}

TrainingState load_checkpoint(const fs::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity) {
  const CheckpointState saved = read_state(checkpoint);
  TrainingState state{{saved.samples, saved.steps, saved.reference},
                      {saved.epoch, saved.offset},
                      {saved.next_block, saved.returned_blocks, {}},
                      saved.identity,
                      saved.run_id};
  check_identity(checkpoint / kState, saved.identity, identity);
  if (run.strategy().wants_order_of_reads()) lay_out(run, saved.order);
  const AtRest rest(run);
  load_into_module(run.module(), read_safetensors(checkpoint / kModel));
  load_optimizer(checkpoint / kOptimizer, run);
  // One that was lost before the checkpoint was made has left nothing of its own either.
  if (saved.workers == run.world().size() && fs::exists(rank_path(checkpoint, run.world().rank())))
    load_own(rank_path(checkpoint, run.world().rank()), run, state);
  else if (run.world().rank() == 0)
    return_blocks(checkpoint, saved.workers, state.queue);
  run.worker().progress = state.progress;
  return state;
}

}  // namespace skein

#include "torch/run_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "torch/generator.h"
#include "torch/torch_stream.h"

namespace skein {
namespace {

namespace fs = std::filesystem;
constexpr const char* kGenerator = "torch_generator";
constexpr const char* kDeviceGenerator = "device_generator";
constexpr const char* kOptimizer = "optimizer/";
constexpr const char* kSteps = "steps";
constexpr const char* kOwnMissed = "updates missed while frozen";
constexpr const char* kStrategy = "strategy";

torch::Tensor whole_numbers(const std::vector<std::int64_t>& numbers) {
  return torch::tensor(numbers, torch::kInt64);
}

std::vector<std::int64_t> whole_numbers(const SafeTensors& file, const std::string& name) {
  const torch::Tensor* saved = file.find(name);
  if (saved == nullptr || saved->dtype() != torch::kInt64) return {};
  const torch::Tensor flat = saved->reshape({-1}).contiguous();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

// Whether the run saves a tensor of that name among each worker's own.
bool is_of_run(const std::string& name) {
  for (const char* prefix : {"buffer/", kOptimizer, WeightAverage::kPrefix})
    if (name.starts_with(prefix)) return true;
  return name == kGenerator || name == kDeviceGenerator || name == kSteps || name == kOwnMissed ||
         name == kStrategy || name == WeightAverage::kTaken;
}

torch::Device device_of_run(Distributed::Impl& run) { return torch_device_of(run.device()); }

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
      tensors.push_back({kOptimizer + name + "/" + run.binding().names_of_slot(slot).front(),
                         flat.narrow(0, static_cast<std::int64_t>(range.offset),
                                     static_cast<std::int64_t>(range.count))
                             .view(run.binding().parameter(slot).sizes())});
    }
  }
  return tensors;
}

std::vector<NamedTensor> buffers(Distributed::Impl& run) {
  std::vector<NamedTensor> tensors;
  for (const auto* each : {&run.binding().float_buffers(), &run.binding().integer_buffers()})
    for (const NamedTensor& buffer : *each)
      tensors.push_back({"buffer/" + buffer.name, buffer.tensor});
  return tensors;
}

// What a worker saves of the tensors that the run has.
std::vector<NamedTensor> own_of_run(Distributed::Impl& run) {
  auto tensors = buffers(run);
  if (!run.strategy().equal_replicas())
    for (const NamedTensor& each : optimizer_tensors(run)) tensors.push_back(each);
  return tensors;
}

// What of it is written straight back. A strategy under which all have one optimizer's state has
// saved none of each worker's: then all go on with that.
std::vector<NamedTensor> restored_in_place(const SafeTensors& file, Distributed::Impl& run) {
  auto tensors = own_of_run(run);
  const auto is_saved = [&](const NamedTensor& each) {
    return each.name.starts_with(kOptimizer) && file.find(each.name) != nullptr;
  };
  return std::any_of(tensors.begin(), tensors.end(), is_saved) ? tensors : buffers(run);
}

[[noreturn]] void refuse(const fs::path& path, const std::string& tensor) {
  throw ConfigError(
      fmt::format("{}: no '{}' of the right shape and type: this is another job's checkpoint",
                  path.string(), tensor));
}

// A run that was saved on another kind of device has none: this one starts from its seed.
void restore_generator(const fs::path& path, const SafeTensors& file, torch::Device device,
                       const char* name) {
  const torch::Tensor* saved = file.find(name);
  if (saved == nullptr) return;
  auto generator = generator_of(device);
  try {
    generator.set_state(*saved);
  } catch (const c10::Error&) {
    throw ConfigError(
        fmt::format("{}: '{}' is no state of torch's random generator", path.string(), name));
  }
}

// Calls visit(name of the tensor in the file, slot) for every parameter of one state vector.
template <typename Visit>
void for_tensors_of(Distributed::Impl& run, const std::string& vector, Visit visit) {
  for (int slot = 0; slot < run.binding().slots(); ++slot)
    visit(vector + "/" + run.binding().names_of_slot(slot).front(), slot);
}

// Calls it for those of all vectors of the optimizer.
template <typename Visit>
void for_state_tensors(Distributed::Impl& run, Visit visit) {
  for (const auto& [name, vector] : run.optimizer().state()) for_tensors_of(run, name, visit);
}

// How many of those tensors the file has, in their shapes, of how many there are.
std::pair<int, int> shared_tensors_in(const SafeTensorsFile& file, Distributed::Impl& run) {
  int found = 0, all = 0;
  for (const auto& [name, vector] : run.strategy().shared_state().vectors)
    for_tensors_of(run, name, [&](const std::string& tensor, int slot) {
      found += file.has(tensor, run.binding().parameter(slot).sizes()) ? 1 : 0;
      ++all;
    });
  return {found, all};
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

void read_into(const SafeTensorsFile& file, const std::string& tensor, std::size_t first,
               Span into) {
  if (into.device.kind != Device::gpu) return file.read(tensor, first, into);
  torch::Tensor host = torch::empty({static_cast<std::int64_t>(into.count)});
  file.read(tensor, first, {host.data_ptr<float>(), into.count});
  tensor_over(into).copy_(host);
}

}  // namespace

AtRest::AtRest(Distributed::Impl& run) : run_(run) { finish(); }

AtRest::~AtRest() {
  try {
    finish();
  } catch (...) {  // a device that has failed is heard of in the next step
  }
}

void AtRest::finish() {
  run_.world().impl().finish([this] { run_.optimizer().state(); });
  TorchStream(run_.device()).finish();
}

std::vector<NamedTensor> own_tensors(Distributed::Impl& run, std::int64_t steps) {
  auto tensors = own_of_run(run);
  tensors.push_back({kGenerator, generator_of(torch::kCPU).get_state()});
  if (const torch::Device device = device_of_run(run); !device.is_cpu())
    tensors.push_back({kDeviceGenerator, generator_of(device).get_state()});
  if (!run.strategy().equal_replicas()) {
    tensors.push_back({kSteps, whole_numbers({steps})});
    tensors.push_back({kOwnMissed, whole_numbers(run.settings().missed())});
  }
  run.look_at([&](const Strategy& strategy) {
    if (const auto words = strategy.own_words(); !words.empty())
      tensors.push_back({kStrategy, whole_numbers(words)});
  });
  return tensors;
}

std::vector<NamedTensor> tensors_of(const OwnNumbers& numbers) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, values] : numbers) {
    if (name.empty() || is_of_run(name))
      throw ConfigError(fmt::format(
          "save_checkpoint(): own numbers named '{}': the run saves that itself; expected another "
          "name",
          name));
    tensors.push_back({name, whole_numbers(values)});
  }
  return tensors;
}

OwnNumbers own_numbers(const SafeTensors& file) {
  OwnNumbers numbers;
  for (const NamedTensor& each : file.tensors)
    if (each.tensor.dtype() == torch::kInt64 && !is_of_run(each.name))
      numbers[each.name] = whole_numbers(file, each.name);
  return numbers;
}

void check_own(const fs::path& path, const SafeTensors& file, Distributed::Impl& run) {
  for (const NamedTensor& each : restored_in_place(file, run)) {
    const torch::Tensor* saved = file.find(each.name);
    if (saved == nullptr || saved->sizes() != each.tensor.sizes() ||
        saved->dtype() != each.tensor.dtype())
      refuse(path, each.name);
  }
  if (file.find(kGenerator) == nullptr) refuse(path, kGenerator);
  for (const std::int64_t steps : whole_numbers(file, kSteps))
    if (steps < 0)
      throw ConfigError(
          fmt::format("{}: {} = {}: expected at least 0", path.string(), kSteps, steps));
  const auto missed = whole_numbers(file, kOwnMissed);
  if (!missed.empty() && missed.size() != static_cast<std::size_t>(run.binding().slots()))
    refuse(path, kOwnMissed);
}

std::int64_t restore_own(const fs::path& path, const SafeTensors& file, Distributed::Impl& run,
                         std::int64_t steps) {
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& each : restored_in_place(file, run))
    each.tensor.detach().copy_(*file.find(each.name));
  restore_generator(path, file, torch::kCPU, kGenerator);
  if (const torch::Device device = device_of_run(run); !device.is_cpu())
    restore_generator(path, file, device, kDeviceGenerator);
  const auto words = whole_numbers(file, kStrategy);
  run.world().impl().finish([&] { run.strategy().restore_own(words); });
  const auto own = whole_numbers(file, kSteps);
  return run.strategy().equal_replicas() || own.empty() ? steps : own.front();
}

void restore_own_missed(const SafeTensors& file, Distributed::Impl& run) {
  const auto missed = whole_numbers(file, kOwnMissed);
  if (!run.strategy().equal_replicas() && !missed.empty()) run.settings().restore_missed(missed);
}

std::vector<TensorShape> state_shapes(Distributed::Impl& run) {
  std::vector<TensorShape> shapes;
  for_state_tensors(run, [&](const std::string& name, int slot) {
    shapes.push_back({name, run.binding().parameter(slot).sizes().vec()});
  });
  const SharedState shared = run.strategy().shared_state();
  for (const auto& [name, vector] : shared.vectors)
    if (*shared.begun)
      for_tensors_of(run, name, [&](const std::string& tensor, int slot) {
        shapes.push_back({tensor, run.binding().parameter(slot).sizes().vec()});
      });
  return shapes;
}

void stream_parameters(Distributed::Impl& run, int to, const WriteValues& write) {
  const auto& slots = run.binding().arena().slots();
  run.stream_optimizer_state(to, [&](const std::string&, Range range, Span values) {
    write_parameters(slots, range, values, write);
  });
  const SharedState shared = run.strategy().shared_state();
  if (run.world().rank() != to || shared.vectors.empty() || !*shared.begun) return;
  run.world().impl().finish([&] {
    for (const auto& [name, vector] : shared.vectors)
      write_parameters(slots, {0, vector.count}, vector, write);
  });
}

void check_optimizer(const fs::path& path, const SafeTensorsFile& file, Distributed::Impl& run) {
  for_state_tensors(run, [&](const std::string& name, int slot) {
    if (!file.has(name, run.binding().parameter(slot).sizes())) refuse(path, name);
  });
  if (const auto [found, all] = shared_tensors_in(file, run); found > 0 && found < all)
    refuse(path, run.strategy().shared_state().vectors.begin()->first);
}

// A checkpoint of a strategy that had none, or of an older version, leaves what workers have in
// common to begin anew.
void restore_shared(const SafeTensorsFile& file, Distributed::Impl& run) {
  const SharedState shared = run.strategy().shared_state();
  if (shared_tensors_in(file, run).first == 0) return;
  for (const auto& [name, vector] : shared.vectors)
    for_tensors_of(run, name, [&, &into = vector](const std::string& tensor, int slot) {
      read_into(file, tensor, 0,
                into.at(run.binding().arena().slots()[static_cast<std::size_t>(slot)].range));
    });
  *shared.begun = true;
}

void restore_optimizer(const SafeTensorsFile& file, Distributed::Impl& run) {
  restore_shared(file, run);
  const OwnedState& owned = run.optimizer().owned_state();
  for (const auto& [name, vector] : run.optimizer().state())
    for_tensors_of(run, name, [&, &into = vector](const std::string& tensor, int slot) {
      const Range whole = run.binding().arena().slots()[static_cast<std::size_t>(slot)].range;
      for (const Range& own : owned.owned()) {
        const std::size_t begin = std::max(whole.offset, own.offset);
        const std::size_t end = std::min(whole.end(), own.end());
        if (begin < end)
          read_into(file, tensor, begin - whole.offset,
                    into.at(owned.place_of({begin, end - begin})));
      }
    });
}

std::string kind_of_state(Distributed::Impl& run) {
  std::vector<std::string> names;
  for (const auto& each : run.optimizer().state()) names.push_back(each.first);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> order_of(Distributed::Impl& run) {
  std::vector<std::string> names;
  for (const Slot& slot : run.binding().arena().slots()) names.push_back(slot.name);
  return names;
}

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

}  // namespace skein

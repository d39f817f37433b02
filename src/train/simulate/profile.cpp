#include <fmt/format.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "core/units.h"
#include "data/open.h"
#include "models/model.h"
#include "sim/partition.h"
#include "torch/binding.h"
#include "train/gpus.h"
#include "train/optimizer.h"
#include "train/simulate/layer_times.h"
#include "train/simulate/place.h"
#include "train/threads.h"
#include "train/virtual_cluster.h"

namespace skein {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string counted(int count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string device_name(const Place& place) {
  if (!place.queue) return processor_name();
  const auto index = static_cast<std::size_t>(place.queue->device().index);
  return fmt::format("{}, {}", find_gpus().devices.at(index).name, processor_name());
}

// The time when a device has done what was put there.
class DeviceClock final : public Clock {
 public:
  explicit DeviceClock(Queue* queue) : queue_(queue) {}
  Time now() const override {
    if (queue_) queue_->finish();
    return clock_.now();
  }

 private:
  Queue* queue_;
  SteadyClock clock_;
};

std::string describe_source(const ProfileOptions& options, const std::string& data,
                            const Place& place, int workers, bool in_order) {
  const TrainOptions& job = options.job;
  std::string out = fmt::format("measured: {}", job.model);
  for (const auto& [key, value] : job.model_settings) out += fmt::format(" {}={}", key, value);
  out += fmt::format(" on {}, batch {}, ", data, job.batch);
  if (workers > 1) out += counted(workers, "worker") + " at once, ";
  if (job.precision != "f32") out += job.precision + ", ";
  if (options.pause.count() > 0) out += print_duration(options.pause) + " pauses, ";
  out += fmt::format("{}, {}, {}", counted(job.threads, "thread"),
                     counted(options.iterations, "iteration"), device_name(place));
  if (!in_order) out += "; layers in order of registration, which is not that of their use";
  return out;
}

sim::SampleStream whole_set_in_random_order(const Dataset& data, std::uint64_t seed, int rank) {
  std::vector<std::uint32_t> all(static_cast<std::size_t>(data.size()));
  std::iota(all.begin(), all.end(), 0u);
  return {std::move(all), Rng(seed).split(static_cast<std::uint64_t>(rank))};
}

}  // namespace

sim::Profile measure_profile(const ProfileOptions& options, World& world) {
  const TrainOptions& job = options.job;
  use_threads(job.threads);
  Place place(job, world.rank());
  const OnQueue scope(place.queue.get());
  const DataSets data = open_data(job.data, job.data_settings, job.seed);
  torch::manual_seed(job.seed);
  const auto model =
      make_model(job.model, data.train->sample_shape(), data.train->classes(), job.model_settings);
  place.compute.take(*model);
  const Allocate allocate = allocator_of(place.queue.get());
  Binding binding(*model, allocate);
  const auto optimizer = make_optimizer(job, binding.arena().size(), allocate);
  auto samples = whole_set_in_random_order(*data.train, job.seed, world.rank());

  Batch batch;
  UpdateContext context{.learning_rate = job.learning_rate, .step = 0};
  const Arena& arena = binding.arena();
  Workload workload;
  workload.load = [&] {
    batch = place.compute.upload().bring(data.train->get(samples.next(job.batch)));
  };
  workload.forward = [&] {
    const Autocast precision = place.compute.autocast();
    return loss_of(model->forward(batch.data), batch.target);
  };
  workload.update = [&] {
    ++context.step;
    optimizer->update({0, arena.size()}, arena.parameters(), arena.gradients(), context);
  };
  if (options.pause.count() > 0)
    workload.wait = [&] { std::this_thread::sleep_for(options.pause); };
  world.barrier();
  LayerTimes times = measure_layers(binding, workload, options.warmup, options.iterations,
                                    DeviceClock(place.queue.get()));
  world.barrier();  // nobody leaves while others may still wait for it

  sim::Profile profile;
  profile.name = job.model;
  profile.source = describe_source(options, data.name, place, world.size(), times.in_order);
  profile.batch = job.batch;
  profile.layers = std::move(times.layers);
  profile.update = times.update;
  return profile;
}

}  // namespace skein

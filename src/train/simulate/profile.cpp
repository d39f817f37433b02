#include <fmt/format.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "core/units.h"
#include "data/open.h"
#include "models/model.h"
#include "sim/partition.h"
#include "train/optimizer.h"
#include "train/simulate/layer_times.h"
#include "train/simulate/threads.h"
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

std::string describe_source(const ProfileOptions& options, const std::string& data, int workers,
                            bool in_order) {
  const TrainOptions& job = options.job;
  std::string out = fmt::format("measured: {}", job.model);
  for (const auto& [key, value] : job.model_settings) out += fmt::format(" {}={}", key, value);
  out += fmt::format(" on {}, batch {}, ", data, job.batch);
  if (workers > 1) out += counted(workers, "worker") + " at once, ";
  if (options.pause.count() > 0) out += print_duration(options.pause) + " pauses, ";
  out += fmt::format("{}, {}, {}", counted(job.threads, "thread"),
                     counted(options.iterations, "iteration"), processor_name());
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
  const DataSets data = open_data(job.data, job.data_settings, job.seed);
  torch::manual_seed(job.seed);
  const auto model =
      make_model(job.model, data.train->sample_shape(), data.train->classes(), job.model_settings);
  Binding binding(*model, allocate_on_heap);
  const auto optimizer = make_optimizer(job, binding.arena().size());
  auto samples = whole_set_in_random_order(*data.train, job.seed, world.rank());

  Batch batch;
  UpdateContext context{.learning_rate = job.learning_rate, .step = 0};
  const Arena& arena = binding.arena();
  Workload workload;
  workload.load = [&] { batch = data.train->get(samples.next(job.batch)); };
  workload.forward = [&] { return loss_of(model->forward(batch.data), batch.target); };
  workload.update = [&] {
    ++context.step;
    optimizer->update({0, arena.size()}, arena.parameters(), arena.gradients(), context);
  };
  if (options.pause.count() > 0)
    workload.wait = [&] { std::this_thread::sleep_for(options.pause); };
  world.barrier();
  LayerTimes times =
      measure_layers(binding, workload, options.warmup, options.iterations, SteadyClock());
  world.barrier();  // nobody leaves while others may still wait for it

  sim::Profile profile;
  profile.name = job.model;
  profile.source = describe_source(options, data.name, world.size(), times.in_order);
  profile.batch = job.batch;
  profile.layers = std::move(times.layers);
  profile.update = times.update;
  return profile;
}

}  // namespace skein

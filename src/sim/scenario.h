// Everything that determines a simulated run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulate/pace.h"
#include "optimize/optimizer.h"
#include "optimize/schedule.h"
#include "sim/faults.h"
#include "sim/network.h"
#include "sim/profile.h"

namespace skein::sim {

struct Scenario {
  int workers = 8;
  Network network;
  std::uint64_t seed = 1;

  std::string strategy = "allreduce";
  std::map<std::string, std::string> strategy_settings;
  Duration patience = std::chrono::seconds(60);  // the longest wait for a peer

  Profile profile;
  std::int64_t batch = 0;      // samples per worker and micro-batch
  int accumulate = 1;          // micro-batches per step
  std::vector<double> speeds;  // relative; one per worker, or none: all 1
  double jitter = 0;           // a micro-batch takes 1 ± this, uniformly
  Slowdowns slowdowns;

  // For a model of that many elements, with its state where the model is.
  std::function<std::unique_ptr<Optimizer>(std::size_t size, Allocate allocate)> optimizer;
  LearningRate learning_rate{0.1, Schedule{}};
  double clip = 0;

  // The end: the first of these. At least one is set.
  std::int64_t samples = 0;  // over all workers
  Duration time{};           // virtual
  double target_loss = 0, target_accuracy = 0;
  std::uint64_t most_events = std::numeric_limits<std::uint64_t>::max();  // more: it hangs

  // When the models are looked at from outside; that takes no time. One of the two, or neither.
  Duration observe_time{};
  std::int64_t observe_samples = 0;

  std::vector<Fault> faults;

  double speed(int rank) const {
    return speeds.empty() ? 1 : speeds[static_cast<std::size_t>(rank)];
  }
  // The virtual time of one micro-batch, averaged over the workers' speeds.
  Duration mean_gradient() const;
};

}  // namespace skein::sim

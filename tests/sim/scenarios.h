// Scenarios that are small enough to be worked out by hand.
#pragma once

#include <memory>
#include <vector>

#include "optimize/sgd.h"
#include "sim/simulation.h"
#include "sim/testbed.h"

namespace skein::sim {

inline constexpr std::int64_t kBatch = 8;
inline constexpr std::int64_t kLayerElements = 64000;

// `layers` equal layers, of 256 KB each.
inline Profile hand_profile(int layers, Duration forward, Duration backward, Duration update = {}) {
  Profile profile;
  profile.name = "hand";
  profile.batch = kBatch;
  profile.update = update;
  for (int i = 0; i < layers; ++i)
    profile.layers.push_back({"layer", {kLayerElements}, forward, backward});
  return profile;
}

// Messages take no time at all.
inline Network free_network() { return plain_network(1e21, Duration(0)); }

inline auto sgd(const SgdOptions& options = {}) {
  return [options](std::size_t size, Allocate allocate) {
    return std::make_unique<Sgd>(size, options, std::move(allocate));
  };
}

// An allreduce of `steps` steps.
inline Scenario hand_scenario(int workers, const Network& network, const Profile& profile,
                              std::int64_t steps) {
  Scenario scenario;
  scenario.workers = workers;
  scenario.network = network;
  scenario.profile = profile;
  scenario.batch = kBatch;
  scenario.samples = steps * workers * kBatch;
  scenario.optimizer = sgd();
  return scenario;
}

// The time of a ring all-reduce of whole parts.
inline Duration ring_time(int workers, std::int64_t elements, Duration latency) {
  return 2 * (workers - 1) * (latency + Duration(elements * 4 / workers));
}

inline void expect_iterations(const Report& report, std::size_t steps, Duration each) {
  EXPECT_TRUE(report.completed());
  for (const WorkerReport& worker : report.workers)
    EXPECT_EQ(worker.figures.iterations, std::vector<Duration>(steps, each));
}

}  // namespace skein::sim

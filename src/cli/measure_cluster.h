// What `skein advise` finds out about real machines, by workers on them.
#pragma once

#include <vector>

#include "core/clock.h"
#include "sim/profile.h"
#include "skein/world.h"
#include "train/virtual_cluster.h"

namespace skein {

// Between two hosts, which are counted from 0.
struct MeasuredLink {
  int from = 0, to = 0;
  double bytes_per_second = 0;  // each direction, both at once
};

struct MeasuredCluster {
  int workers = 1;
  int workers_per_host = 1;
  double bytes_per_second = 0;      // of a host, each direction, as an all-reduce sees it
  Duration latency{};               // of a message, as a barrier sees it
  std::vector<double> speeds;       // of each worker, over rank 0's
  std::vector<MeasuredLink> links;  // of every two hosts; none where there is one host
  sim::Profile profile;             // of rank 0; only where a model was measured
};

// All workers call it together; `per_host` is how many each host has. With `model` every worker
// trains it for a while, all at the same time, and the times say how fast each is; without, all
// count as equally fast. The simulation has one bandwidth, that of an all-reduce; links are for the
// reader. The result is the same on all but for the profile.
MeasuredCluster measure_cluster(World& world, int per_host, const ProfileOptions* model);

}  // namespace skein

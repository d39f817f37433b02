// How long a fabric's operations take on this machine, each beside the least it could take.
//
// All workers of a world call these together, each from its own thread: the caller carries.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "skein/world.h"

namespace skein {

// Something to be timed: all workers run it at the same time, `batch` times in a row. `prepare`, if
// any, comes before each round and is not timed.
struct Contestant {
  std::string name;
  std::function<void()> run;
  int batch = 1;
  std::function<void()> prepare = nullptr;
};

// Of one run, over all rounds. A round lasts from the first worker's begin to the last one's end.
struct Times {
  int rounds = 0;
  double min_ms = 0, p50_ms = 0, p99_ms = 0;
};

// How often: up to `rounds` times, but at least three, until `time` has passed.
struct Effort {
  int rounds = 30;
  std::chrono::nanoseconds time = std::chrono::seconds(20);
};

// Times each contestant after a warm-up round, all of them in turns, so that they see the same
// machine; a barrier before each. The results are the same on every worker.
std::vector<Times> race(World& world, const std::vector<Contestant>& contestants,
                        const Effort& effort);

struct FabricTimes {
  std::string name;
  Times times;
  std::size_t bytes_moved = 0;  // into each worker, and as many out of it
  double limit_ms = 0;          // the least it could take; 0: not stated

  double ratio() const { return limit_ms > 0 ? times.p50_ms / limit_ms : 0; }
  double bytes_per_second() const { return static_cast<double>(bytes_moved) / times.p50_ms * 1e3; }
};

struct FabricReport {
  // reduce_scatter, all_gather, all_reduce, broadcast, barrier; exchange, where ranks have partners
  std::vector<FabricTimes> operations;
  bool emulated = false;

  // Reduce-scatter and all-gather together over their limits together; 0 where these are not
  // stated.
  double headline() const;
};

// Times the collectives on `bytes` of the fabric's own memory, which its owner has just written, as
// it is after a backward pass. The limit of each is the memcpy of bytes_moved out of the peers'
// memory into the own, in the same state, measured in turns with it in the same processes, on all
// of them at once. On an emulated link it is what the messages of the ring (or tree) would need on
// an ideal one: their bytes over the bandwidth, and the latency of those that wait for each other.
// Between hosts no limit is stated, and a round lasts as long as the longest worker's. Where the
// world works on a device the memory is there, an operation has ended when the device has done it,
// and the limit is a copy of as many bytes on the device.
FabricReport measure_fabric(World& world, std::size_t bytes, const Effort& effort);

}  // namespace skein

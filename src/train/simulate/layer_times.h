// How long a module computes, parameter by parameter.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "core/clock.h"
#include "sim/profile.h"
#include "torch/binding.h"

namespace skein {

// An iteration of training in the parts that are timed one by one.
struct Workload {
  std::function<void()> load;              // gets the next batch; not timed
  std::function<torch::Tensor()> forward;  // its loss
  std::function<void()> update;            // leaves the gradients zero
  std::function<void()> wait = [] {};      // between backward and update; not timed
};

struct LayerTimes {
  std::vector<sim::Layer> layers;  // as measure_profile() describes them
  Duration update{};
  bool in_order = true;  // forward first uses the parameters in the order of their slots
};

// Runs `warmup` and then `iterations` (at least 1) pairs of iterations, one of each pair with the
// hooks that see parameters being read and gradients being complete, and one without. Where a
// device computes, the clock waits for it: so what the hooks cost is not in the totals.
LayerTimes measure_layers(Binding& binding, const Workload& workload, int warmup, int iterations,
                          const Clock& clock);

}  // namespace skein

// What the workers of a virtual cluster optimise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/queue.h"

namespace skein::sim {

// How good a model is. Accuracy where the objective has one, in [0, 1].
struct Quality {
  double loss = 0;
  std::optional<double> accuracy;
};

// One worker's copy of the model and its stream of samples.
class Replica {
 public:
  virtual ~Replica() = default;

  virtual Arena& arena() = 0;

  // Draws the next `samples` samples of this worker (at least 1) and adds the mean of their
  // gradients at arena().parameters() to arena().gradients().
  virtual void gradient(std::int64_t samples) = 0;

  // Their mean loss, once there was a gradient. Waits for a device.
  virtual double loss() const = 0;
};

// Everything random in it comes from a seed. Not thread-safe.
class Objective {
 public:
  virtual ~Objective() = default;

  // Worker `rank`'s replica. All start from the same parameters unless the objective says
  // otherwise. The objective outlives its replicas.
  virtual std::unique_ptr<Replica> replica(int rank) = 0;

  // Where the arenas of its replicas are, and where they put their work; null: on the host. What
  // evaluate() is given is there, too. Outlives the replicas.
  virtual Queue* queue() { return nullptr; }

  // Bytes in use on that device, by whomever; 0 on the host.
  virtual std::int64_t device_memory() const { return 0; }

  // How good `parameters`, laid out as the arenas of the replicas, are. Nothing where there is
  // nothing to measure. The same input gives the same result.
  virtual std::optional<Quality> evaluate(Span parameters) = 0;
};

}  // namespace skein::sim

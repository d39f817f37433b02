// What the virtual cluster asks of real models: how long they compute, and their gradients. No
// torch here, so that the command line can ask.
#pragma once

#include <memory>
#include <optional>

#include "sim/objective.h"
#include "sim/profile.h"
#include "skein/world.h"
#include "train/options.h"

namespace skein {

struct ProfileOptions {
  TrainOptions job;  // its model, data, settings, seed, threads, device, precision, batch and
                     // optimizer count
  int iterations = 20;
  int warmup = 5;  // iterations before those, which do not count
  // Idle between backward and update, as in a run that waits for its network: what the processor
  // computes after a wait it computes with cold caches.
  std::chrono::nanoseconds pause{0};
};

// Trains the job's model on real data for a while, each worker on its own, and returns how long the
// parts of an iteration took on this worker. All workers call it and compute at the same time, so
// that what they take from each other, cores and memory, is in the times.
//
// One layer per parameter tensor, in the order and with the names of the arena's slots. A tensor
// has the time of forward from its first use to the next one's first use, and the time of backward
// that ends with its gradient; one that is not used has none. Time of backward that comes after
// the last gradient is a layer without tensors at the front if there is much of it. Times are
// medians over the iterations, scaled so that they add up to the medians of the whole forward and
// of the whole backward, taken without the hooks that find the uses. On a GPU (job.device) the
// parts are timed one by one, and the worker computes nothing else meanwhile.
//
// Throws ConfigError for what `skein train` would refuse, too, and IoError when a worker is lost.
sim::Profile measure_profile(const ProfileOptions& options, World& world);

// The job's model and data as an objective for `workers` replicas with real gradients. All replicas
// start from what `skein train` starts from with this seed; each has buffers (batch norm) of its
// own. With `dirichlet` each worker holds samples of its own, skewed by label; else all hold all.
// evaluate() has the whole test set and, for buffers, the mean over the replicas: its result
// depends on them, where the model has buffers, as well as on the parameters. A replica that is
// made again starts anew.
//
// On a GPU, if job.device is one, everything lies there: planes, data (up to Samples::kMostBytes),
// what workers send. The thread that makes the objective uses it, and computes on its queue while
// it is there. With `graphs` a worker's steps are recorded as one CUDA graph after the first few:
// the same kernels, so the same bits.
//
// Sets torch to one thread, for good. Memory grows linearly with the replicas; data are held once.
// Throws ConfigError for what `skein train` would refuse, for a `dirichlet` that is not above 0,
// and for data without labels to skew by.
std::unique_ptr<sim::Objective> make_model_objective(const TrainOptions& job, int workers,
                                                     std::optional<double> dirichlet,
                                                     bool graphs = true);

}  // namespace skein

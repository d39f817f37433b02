// Checkpoints of skein train: those of the library (torch/checkpoints.h) in OUT/checkpoints, with
// each worker's place in the data besides.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "plan/sampler.h"
#include "runtime/block_queue.h"
#include "torch/checkpoints.h"
#include "torch/distributed_impl.h"

namespace skein {

struct TrainingState {
  Progress progress;
  GlobalBatches::Position position;
  BlockQueue::State queue;  // where workers draw from one
  // What must not change between a run and its continuation ("model": "cnn", …).
  std::map<std::string, std::string> identity;
  std::string run_id;  // empty where an older version of Skein saved it
};

// Saves OUT/checkpoints/SAMPLES while training goes on (Checkpoints::finish() waits for it) and,
// when it is on the disk, removes all but the newest `keep`. All workers call it.
void save_checkpoint(const std::filesystem::path& out, Distributed::Impl& run,
                     const TrainingState& state, int keep);

// The newest whole checkpoint of the run whose --out was `folder`, or `folder` itself if it is a
// checkpoint. All workers call it. ConfigError, with what is wrong, when there is none.
std::filesystem::path find_checkpoint(World& world, const std::filesystem::path& folder,
                                      const Say& say);

// Brings `run` to where the checkpoint was made, on any number of workers, and returns its state.
// Throws like Checkpoints::load().
TrainingState load_checkpoint(const std::filesystem::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity);

}  // namespace skein

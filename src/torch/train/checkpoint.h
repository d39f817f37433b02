// What a run needs to go on exactly where it stopped.
//
//   OUT/checkpoints/SAMPLES/model.safetensors      parameters and averaged buffers
//                           optimizer.safetensors  optimizer state by parameter:
//                           "momentum/fc.weight" rank-K.safetensors     worker K's own: buffers,
//                           random generator, place
//                                                  in the data, and optimizer state where each
//                                                  worker has one
//                           state.json             progress, data position, the job's identity
// A checkpoint folder appears by rename, so one that is there is whole.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "data/sampler.h"
#include "runtime/block_queue.h"
#include "torch/distributed_impl.h"

namespace skein {

struct TrainingState {
  Progress progress;
  GlobalBatches::Position position;
  BlockQueue::State queue;  // where workers draw from one
  // What must not change between a run and its continuation ("model": "cnn", …).
  std::map<std::string, std::string> identity;
};

// Writes OUT/checkpoints/SAMPLES and then removes all but the newest `keep`. All workers call it.
void save_checkpoint(const std::filesystem::path& out, Distributed::Impl& run,
                     const TrainingState& state, int keep);

// The newest checkpoint of the run whose --out was `folder`, or `folder` itself if it is a
// checkpoint. ConfigError when there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder);

// Brings `run` to where the checkpoint was made, on any number of workers, and returns its state.
// ConfigError, naming the file, for one that is missing or unreadable, and, naming the entry, for a
// checkpoint of another job than `identity`.
TrainingState load_checkpoint(const std::filesystem::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity);

}  // namespace skein

// What a run needs to go on exactly where it stopped.
//
//   OUT/checkpoints/SAMPLES/
//     model.safetensors      parameters and averaged buffers
//     optimizer.safetensors  optimizer state by parameter: "momentum/fc.weight"
//     rank-K.safetensors     worker K's own: buffers, random generators, place in the data, and
//                            optimizer state where each worker has one
//     state.json             progress, data position, the job's identity, the run's id
//     checksums.json         of all these
// A checkpoint folder appears by rename when all of it is on the disk.
#pragma once

#include <filesystem>
#include <functional>
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
  std::string run_id;  // empty where an older version of Skein saved it
};

using Say = std::function<void(const std::string&)>;

// Writes OUT/checkpoints/SAMPLES and, when it is on the disk, removes all but the newest `keep`.
// All workers call it.
void save_checkpoint(const std::filesystem::path& out, Distributed::Impl& run,
                     const TrainingState& state, int keep);

// The newest whole checkpoint of the run whose --out was `folder`, or `folder` itself if it is a
// checkpoint. `say` hears of those that are damaged, and of one that has no checksums. All workers
// call it, read a part of the files each, and get the same. ConfigError, with what is wrong, when
// there is none.
std::filesystem::path find_checkpoint(World& world, const std::filesystem::path& folder,
                                      const Say& say);

// Brings `run` to where the checkpoint was made, on any number of workers, and returns its state.
// ConfigError, naming the file, for one that is missing or unreadable, and, naming the entry, for a
// checkpoint of another job than `identity`.
TrainingState load_checkpoint(const std::filesystem::path& checkpoint, Distributed::Impl& run,
                              const std::map<std::string, std::string>& identity);

}  // namespace skein

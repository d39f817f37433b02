// What a run needs to go on exactly where it stopped, for skein train and programs alike.
//
//   FOLDER/SAMPLES/
//     model.safetensors      parameters and averaged buffers
//     optimizer.safetensors  optimizer state by parameter: "momentum/fc.weight"
//     rank-K.safetensors     worker K's own: buffers, random generators, what its program adds, and
//                            optimizer state where each worker has one
//     state.json             progress, workers, what the program adds
//     checksums.json         of all these
// A checkpoint folder appears by rename when all of it is on the disk.
//
// A save takes a snapshot, which costs the time of a copy, and a thread of each worker writes its
// part of it. Nobody hears of that until the next save, which waits for the last one.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "keep/background_writer.h"
#include "keep/checkpoint_state.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein {

// The folders in which a program saves. For the worker that leads.
class ProgramFolder {
 public:
  // Before the first save there: ConfigError where it holds checkpoints that this run did not begin
  // with, or another program saves. Those made after the one that was resumed are set aside.
  void take(const std::filesystem::path& folder, bool survives_losses);

  void resumed(const std::filesystem::path& checkpoint);

 private:
  std::map<std::filesystem::path, FileDescriptor> taken_;  // and locked
  std::map<std::filesystem::path, std::int64_t> resumed_;  // from which, by its samples
};

class Checkpoints {
 public:
  explicit Checkpoints(Distributed::Impl& run) : run_(run) {}

  // Waits until the last save is on the disk, and says on stderr why if it is not.
  ~Checkpoints();

  struct Save {
    // Progress, identity and values of the run; the rest is filled in.
    CheckpointState state;
    std::vector<NamedTensor> own = {};  // of this worker's program
    int keep = 3;
    bool wait = false;                      // until it is on the disk
    std::function<void()> prepare = [] {};  // called by the leader, before it touches the folder
  };

  // All workers call it, after flush(). Throws, on all workers, what became of the last save, and
  // what `prepare` throws.
  void save(const std::filesystem::path& folder, Save what);

  // Waits for the last save and throws Error, on all workers, if it has failed. All call it.
  void finish();

  struct Loaded {
    CheckpointState state;
    std::optional<SafeTensors> own;  // of this worker, where as many saved it
  };

  // Brings the run to where the checkpoint was made, on any number of workers. All call it. Throws
  // ConfigError, on all workers, with the run as it was: naming the file that is missing or
  // unreadable, the tensor that does not fit, or the entry in which it is another job than
  // `identity`.
  Loaded load(const std::filesystem::path& checkpoint,
              const std::map<std::string, std::string>& identity);

  std::string run_id;  // of the checkpoint that was loaded, or which the program has set
  ProgramFolder folder;

 private:
  Distributed::Impl& run_;
  bool pending_ = false;              // a save whose end nobody has asked for: the same on all
  std::filesystem::path unfinished_;  // its folder
  BackgroundWriter writer_;
};

using Say = std::function<void(const std::string&)>;

// The newest whole checkpoint of `folder`: the --out of a run, what a program named, or a
// checkpoint itself. Empty where there is none. `say` hears of those that are damaged, and of one
// that has no checksums. All workers call it, read a part of the files each, and get the same.
// ConfigError, beginning with `who`, when there are some and none is whole.
std::filesystem::path find_checkpoint(World& world, const std::filesystem::path& folder,
                                      const std::string& who, const Say& say);

std::filesystem::path own_file(const std::filesystem::path& checkpoint, int rank);

// Throws on all workers if one has failed: ConfigError where that was one. `own` is what this
// worker caught, or null.
void agree_on_success(World& world, const std::exception_ptr& own);

}  // namespace skein

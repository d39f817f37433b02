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

#include "keep/background_writer.h"
#include "keep/checkpoint_state.h"
#include "keep/folder_lock.h"
#include "torch/distributed_impl.h"
#include "torch/safetensors.h"

namespace skein {

class UnfinishedCheckpoint;

using Say = std::function<void(const std::string&)>;

// The folders in which a program saves.
class ProgramFolder {
 public:
  // By the worker that leads, before it saves there. The run's first time: ConfigError where it
  // holds checkpoints that this run did not begin with, or another program saves. Those made after
  // the one that was resumed are set aside.
  void take(const std::filesystem::path& folder, const std::string& run_id);

  // By all workers, when the leader has taken it: the next one that leads may go on there.
  void taken_by_leader(const std::filesystem::path& folder);

  // The run goes on from `checkpoint`, which was made at so many samples.
  void resumed(const std::filesystem::path& checkpoint, std::int64_t samples);

 private:
  std::map<std::filesystem::path, FolderLock> taken_;
  std::map<std::filesystem::path, std::int64_t> resumed_;  // from which, by its samples
};

// ConfigError of `call` unless at least one checkpoint is kept.
void check_keep(const char* call, int keep);

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
    bool wait = false;                       // until it is on the disk
    std::function<void()> prepare = [] {};   // called by the leader, before it touches the folder
    std::function<void()> prepared = [] {};  // and then by all
  };

  // See Distributed::save_checkpoint() and Distributed::resume().
  void save(const std::string& into, const Values& values, const CheckpointOptions& options);
  Resumed resume(const std::string& from, const Values& identity);

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

  // Of the checkpoint that was loaded, or which the leader's `prepare` or a Keeper has set.
  std::string run_id;
  ProgramFolder folder;

  // A program that keeps the folder of its run itself, and names it, as skein train does: the
  // folder of checkpoints in it needs no lock of its own.
  struct Keeper {
    std::string resumes;           // what resume() is called in errors
    Say say;                       // hears of checkpoints that were passed over
    CheckpointState::Data data{};  // into state.json, and out of it
  };
  std::optional<Keeper> keeper;

 private:
  int begin(const UnfinishedCheckpoint& checkpoint, const Save& what);
  bool present(int rank) const;
  bool lost_with_its_leader() const;

  Distributed::Impl& run_;
  bool pending_ = false;  // a save whose end nobody has asked for: the same on all
  std::filesystem::path unfinished_, published_;  // its folder, before and after
  int leader_ = 0;                                // who leads it
  Channel channel_ = -1;                          // on which the leader hears of parts
  Job telling_;                                   // sends it the report of this worker's
  BackgroundWriter writer_;
};

// The newest whole checkpoint of `folder`: the --out of a run, what a program named, or a
// checkpoint itself. Empty where there is none. `say` hears of those that are damaged, and of one
// that has no checksums. All workers call it, read a part of the files each, and get the same.
// ConfigError, beginning with `who`, when there are some and none is whole.
std::filesystem::path find_checkpoint(World& world, const std::filesystem::path& folder,
                                      const std::string& who, const Say& say);

std::filesystem::path own_file(const std::filesystem::path& checkpoint, int rank);

}  // namespace skein

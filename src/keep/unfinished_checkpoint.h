// A checkpoint while the workers write it, each its own part, without a word between them: what
// one has done, the others see in the folder.
//
//   FOLDER/unfinished-SAMPLES/rank-K.done    the files that worker K has written, and their
//                                            checksums; or why it could not
// When all are there the leader gives the folder its name.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/checksum.h"
#include "core/clock.h"

namespace skein {

using FileSums = std::map<std::string, FileSum>;

class UnfinishedCheckpoint {
 public:
  // Of the checkpoint that will be FOLDER/`name`. Touches nothing.
  UnfinishedCheckpoint(std::filesystem::path folder, std::string name);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path published() const { return folder_ / name_; }

  // Makes the folder, and removes what others before it have left. The leader, first.
  void begin() const;

  // This worker's files are on the disk; or it has failed.
  void done(int rank, const FileSums& files) const;
  void failed(int rank, const std::string& reason) const noexcept;

  struct Patience {
    Duration silence;                // the longest in which nothing happens in the folder
    const std::atomic<bool>* hurry;  // the run is over: not longer than a moment
    bool without_the_lost;           // who is not heard of is left out; else that is an error
  };

  // Waits until all of `ranks` have done their parts, writes the checksums, gives the folder its
  // name and removes all but the newest `keep` checkpoints. The leader, last. Throws Error, with
  // the rank and the reason, where a part is missing.
  void publish(const std::vector<int>& ranks, const Patience& patience, int keep) const;

 private:
  FileSums await(const std::vector<int>& ranks, const Patience& patience) const;

  std::filesystem::path folder_;
  std::string name_;
  std::filesystem::path path_;
};

}  // namespace skein

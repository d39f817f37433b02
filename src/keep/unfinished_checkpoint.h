// A checkpoint while the workers write it, each its own part.
//
//   FOLDER/unfinished-SAMPLES/   the files, until the leader gives the folder its name
//
// What workers have written they tell the leader by messages, with lengths and checksums. Nobody
// looks for it in the folder: a network file system may show its listing as it was a minute ago.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/checksum.h"

namespace skein {

using FileSums = std::map<std::string, FileSum>;

// What workers have said of their parts of one checkpoint, as the leader has heard it. Any thread.
class CheckpointParts {
 public:
  // Of the workers that write one.
  explicit CheckpointParts(const std::vector<int>& ranks) : missing_(ranks.begin(), ranks.end()) {}
  CheckpointParts(const CheckpointParts&) = delete;
  CheckpointParts& operator=(const CheckpointParts&) = delete;

  // The rank's files are on the disk; or it could not write them; or nobody will hear of it any
  // more, and why. What is said first of a rank counts.
  void done(int rank, const FileSums& files);
  void failed(int rank, const std::string& reason);
  void lost(int rank, const std::string& reason);

  // Waits until something has been said of every rank, and returns all files. Throws Error for a
  // part that failed, or that is missing unless `without_the_lost`. Where `hurry` is set, which
  // says that the run is over, it waits no longer than a moment.
  FileSums wait(const std::atomic<bool>& hurry, bool without_the_lost);

 private:
  bool forget(int rank) { return missing_.erase(rank) > 0; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> missing_;
  FileSums files_;
  std::string failure_;  // the first
  std::string loss_;     // likewise
};

class UnfinishedCheckpoint {
 public:
  // Of the checkpoint that will be FOLDER/`name`. Touches nothing.
  UnfinishedCheckpoint(std::filesystem::path folder, std::string name);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path published() const { return folder_ / name_; }

  // Makes the folder, and removes what others before it have left. The leader, first.
  void begin() const;

  // Writes the checksums of `files`, which are all there, removes what is not among them, gives the
  // folder its name and removes all but the newest `keep` checkpoints. The leader, last.
  void publish(const FileSums& files, int keep) const;

 private:
  std::filesystem::path folder_;
  std::string name_;
  std::filesystem::path path_;
};

}  // namespace skein

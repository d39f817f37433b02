// What goes into a checkpoint besides the run itself, and what comes back. No torch here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace skein {

// A program's own values, such as the number of the epoch. Text in UTF-8, 1 MiB in all at most.
using Values = std::map<std::string, std::string>;

// Whole numbers of one worker, such as its place in data that no other worker reads.
using OwnNumbers = std::map<std::string, std::vector<std::int64_t>>;

// How Distributed::save_checkpoint() saves.
struct CheckpointOptions {
  // So many of the newest stay in the folder. Older ones are removed when a new one is on the disk.
  int keep = 3;

  // Whether save_checkpoint() returns only when the checkpoint is on the disk. Else it copies what
  // is to be saved into memory, and a thread writes it while training goes on; where there is not
  // enough memory for the copy it waits all the same.
  bool wait = false;

  // What must be the same in a run that goes on from here, such as {"model", "resnet18"}: resume()
  // compares it. The same on all workers. Empty: what the optimizer keeps of the parameters.
  Values identity = {};

  // This worker's own. It gets them back where as many workers go on as have saved. ConfigError for
  // the name of a tensor that the run itself saves.
  OwnNumbers own = {};
};

// What Distributed::resume() found; false where there was nothing to go on from.
struct Resumed {
  // Whether there was a checkpoint.
  explicit operator bool() const { return !path.empty(); }

  // One of `values`, or `fallback` where there is none of that name: so a fresh start needs no
  // special case.
  std::string text(const std::string& name, const std::string& fallback = "") const;

  // The same as a number. ConfigError for a value that is no whole number of 64 bits.
  std::int64_t number(const std::string& name, std::int64_t fallback = 0) const;

  std::string path;  // the checkpoint's folder; empty: there was none
  Values values;     // as save_checkpoint() was given them
  int workers = 0;   // how many workers saved it
  OwnNumbers own;    // CheckpointOptions::own of this worker; empty where workers are more or fewer
  std::string run_id;  // of the run that saved it, 16 digits; empty: an older version of Skein
};

}  // namespace skein

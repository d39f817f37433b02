// state.json of a checkpoint: where the run stood.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace skein {

struct CheckpointState {
  std::string run_id;  // empty: an older version of Skein made it
  std::string saved;   // when, "2026-11-15 16:20:11 UTC"; empty likewise
  std::int64_t samples = 0, steps = 0, reference = 0;
  std::int64_t epoch = 0, offset = 0;  // in the data
  std::int64_t next_block = 0;         // where workers draw from a queue
  std::vector<std::int64_t> returned_blocks;
  int workers = 0;
  std::vector<std::string> order;  // of the parameters; empty: as they are registered
  // What must not change between a run and its continuation ("model": "cnn", …).
  std::map<std::string, std::string> identity;
};

std::string print_state(const CheckpointState& state);

// Of the checkpoint in that folder. ConfigError, with the file and the entry, for one that is
// missing, not JSON, or has an entry that no run could have written.
CheckpointState read_state(const std::filesystem::path& checkpoint);

}  // namespace skein

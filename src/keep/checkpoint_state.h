// state.json of a checkpoint: where the run stood.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace skein {

struct CheckpointState {
  std::string run_id;  // empty: an older version of Skein made it
  std::string saved;   // when, "2026-11-15 16:20:11 UTC"; empty likewise
  std::int64_t samples = 0, steps = 0;
  std::int64_t batch_reference = 0;  // "reference" in the file, as in those of older versions
  std::int64_t round_reference = 0;  // a file without it had both in one: then it is not known, and
                                     // the next round is the reference
  int workers = 0;
  std::vector<std::string> order;  // of the parameters; empty: as they are registered
  bool ordered = false;            // it is that of the first forward, and stays
  // What must not change between a run and its continuation ("model": "cnn", …).
  std::map<std::string, std::string> identity;
  std::map<std::string, std::string> values;     // the program's own
  std::map<std::string, std::string> optimizer;  // what the program changed of its recipe since

  // Of `skein train` alone.
  struct Data {
    std::int64_t epoch = 0, offset = 0;
    std::int64_t next_block = 0;  // where workers draw from a queue
    std::vector<std::int64_t> returned_blocks;
  };
  std::optional<Data> data;
};

std::string print_state(const CheckpointState& state);

// ConfigError for a program's own values that are too long, or not UTF-8.
void check_values(const std::map<std::string, std::string>& values);

// A program's own values on one line of a terminal, "epoch = 3, name = x", of at most `longest`
// characters: a control character is shown as \xNN, and no letter is cut in two.
std::string print_values(const std::map<std::string, std::string>& values, std::size_t longest);

// Of the checkpoint in that folder. ConfigError, with the file and the entry, for one that is
// missing, not JSON, or has an entry that no run could have written.
CheckpointState read_state(const std::filesystem::path& checkpoint);

}  // namespace skein

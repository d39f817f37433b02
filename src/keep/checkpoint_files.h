// The checkpoints of a run as files: which there are, and whether they are whole.
//
//   FOLDER/SAMPLES/         a checkpoint; it appears by rename
//     checksums.json        length and CRC-32C of every other file in it
//   FOLDER/unfinished-…     what a run that died while it saved has left
//   FOLDER/set-aside-…      newer than the one that a run was resumed from
// FOLDER is OUT/checkpoints of `skein train --out OUT`, and the folder that a program names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/checksum.h"

namespace skein {

// Those in `folder`, the oldest first; empty when there are none.
std::vector<std::filesystem::path> numbered_in(const std::filesystem::path& folder);

// Of the run whose --out was `out`: those in OUT/checkpoints.
std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& out);

// Where the checkpoints of `folder` are, which is the --out of a run or what a program named.
std::filesystem::path checkpoint_folder(const std::filesystem::path& folder);

// How many samples a checkpoint was made at, by its name; -1 for what is not a checkpoint's name.
std::int64_t samples_of(const std::filesystem::path& checkpoint);

// The folder --out of the run that `resume`, which is that folder or a checkpoint in it, belongs
// to; empty for a checkpoint that lies elsewhere.
std::filesystem::path run_folder_of(const std::filesystem::path& resume);

void write_checksums(const std::filesystem::path& checkpoint,
                     const std::map<std::string, FileSum>& files);

struct Inspection {
  std::string damage;      // what is wrong, with the file; empty: nothing
  bool checksums = false;  // there are some: an older version of Skein wrote none

  bool whole() const { return damage.empty(); }
};

// Reads the checkpoint's files, or every `parts`-th of them from the `part`-th on, and compares
// them with their checksums. Part 0 also reads state.json. Throws nothing for what is damaged.
Inspection inspect(const std::filesystem::path& checkpoint, int part = 0, int parts = 1);

// A run goes on from the checkpoint at `samples`: those made later are of a future that will not
// come, or are damaged, and get names that nobody reads. Returns their old names.
std::vector<std::string> set_aside_later(const std::filesystem::path& folder, std::int64_t samples);

// Removes all but the newest `keep`. One that goes loses its name first.
void remove_older(const std::filesystem::path& folder, int keep);

// Removes what a run that died while it saved, or while it removed one, has left.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace skein

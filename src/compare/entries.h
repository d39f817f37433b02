// What is compared: strategies, each with options of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compare/job.h"

namespace skein::compare {

// Which options a run has, and whether each is a flag.
using KnownOptions = std::map<std::string, bool>;

struct Entry {
  std::string name;  // of its row, and unique
  Job options;       // in place of, or besides, those of the whole job; --strategy is one of them
};

// An option as an entry has it. `key` is an option of the run; else, or with a dot, a setting: KEY
// is `--set strategy.KEY`, PART.KEY is `--set PART.KEY`. ConfigError, beginning with `where`: a key
// that the comparison itself gives to every run, a flag that is neither true nor false.
JobOption entry_option(const std::string& key, const std::string& value, const KnownOptions& known,
                       const std::string& where);

// 'allreduce, allreduce:balance=true, abs:lr=0.02,batch=8': commas part entries, and the options of
// one; what has an = belongs to the entry before it. ConfigError for what is not of that form.
std::vector<Entry> parse_entries(const std::string& text, const KnownOptions& known);

// ConfigError unless there are some and their names differ.
void check_names(const std::vector<Entry>& entries);

// The link in a comparison's folder that names the folder of the run that goes on.
inline constexpr const char* kCurrent = "current";

// A folder for each, in their order: names made of letters, digits, '.', '=', '-' and '_', which
// differ. ConfigError for an entry whose folder would stand where the comparison has a file.
std::vector<std::string> folder_names(const std::vector<Entry>& entries);

}  // namespace skein::compare

// Options from a TOML file.
#pragma once

#include <string>
#include <vector>

namespace skein {

// One option as the file gives it.
struct ConfigEntry {
  std::string key;       // the long option's name without dashes
  std::string value;     // as it would be on the command line; a list is joined by commas
  bool boolean = false;  // the file says true or false, without quotes
  int line = 0;

  bool operator==(const ConfigEntry&) const = default;
};

// What a file says of one entry of a comparison: [entries.NAME].
struct ConfigTable {
  std::string name;
  std::vector<ConfigEntry> entries;
  int line = 0;
};

// Reads the file at `path`, or `text` in its place. Keys at the top are options; tables are
// settings of one part of the job, and `width = 64` under [model] becomes {"set",
// "model.width=64"}, as with
// `--set model.width=64`. In the file's order.
// ConfigError, with file and line: no such file, not TOML, a table other than strategy, model and
// data, a value that is not text, a number, true, false or a list of these.
// With `tables` there may be a table [entries], too: each table in it becomes one of them, in which
// [entries.NAME.model] is what [model] is at the top.
std::vector<ConfigEntry> read_config(const std::string& path,
                                     std::vector<ConfigTable>* tables = nullptr);
std::vector<ConfigEntry> parse_config(const std::string& text, const std::string& path,
                                      std::vector<ConfigTable>* tables = nullptr);

}  // namespace skein

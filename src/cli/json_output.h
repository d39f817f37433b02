// The file that --json names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace skein {

// Makes the folder of the file `path` where there is none. ConfigError, naming `option`, unless the
// file can be made there: the folder may be written, and `path` is no folder itself. For every file
// that is written only at the end: a run must not end with its results lost.
void prepare_file(const std::string& option, const std::string& path);

// One JSON object; it appears when it is complete. Does nothing when `path` is empty.
class JsonOutput {
 public:
  // Checks `path` at once.
  JsonOutput(std::string path, std::string command);

  // Writes `figures` with command, version, seed and config added. Bytes that are no UTF-8 become
  // U+FFFD.
  void write(nlohmann::json figures, std::uint64_t seed, nlohmann::json config) const;

 private:
  std::string path_, command_;
};

}  // namespace skein

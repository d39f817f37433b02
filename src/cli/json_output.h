// The file that --json names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace skein {

class CommandOptions;

// Makes the folder of the file `path` where there is none. ConfigError, naming `option`, unless the
// file can be made there: the folder may be written, and `path` is no folder itself. What is no
// regular file, such as a device or a pipe, must be there and may be written. For every file that
// is written only at the end: a run must not end with its results lost.
void prepare_file(const std::string& option, const std::string& path);

// One JSON object; it appears when it is complete. Does nothing without --json.
class JsonOutput {
 public:
  // Opens the command's documents and checks the path of this one at once. `here`: as
  // CommandOptions::open_documents() has it.
  JsonOutput(CommandOptions& options, std::string command, bool here = true);

  // Writes `figures` with command, version, seed and config added. Bytes that are no UTF-8 become
  // U+FFFD.
  void write(nlohmann::json figures, std::uint64_t seed, nlohmann::json config) const;

 private:
  std::string path_, command_;
};

}  // namespace skein

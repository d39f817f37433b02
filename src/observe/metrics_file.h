// metrics.jsonl: one JSON object per line, appended as the run goes.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "core/file_descriptor.h"

namespace skein {

class MetricsFile {
 public:
  // Writes nothing.
  MetricsFile() = default;

  // Appends to `path`; a line that an earlier run left unfinished is ended first.
  explicit MetricsFile(const std::filesystem::path& path);

  // One whole line in one write. Throws Error, with path and reason, when it cannot be written.
  void write(const nlohmann::json& line);

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
};

}  // namespace skein

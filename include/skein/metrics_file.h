// metrics.jsonl: one JSON object per line, appended as a run goes. No torch here.
#pragma once

#include <memory>
#include <string>

#include "skein/record.h"

namespace skein {

// For one worker. Not thread-safe.
class MetricsWriter {
 public:
  // Appends to `path`; a line that an earlier run left unfinished is ended first. Throws Error,
  // with path and reason, when it cannot be opened.
  explicit MetricsWriter(const std::string& path);

  // The other one may only be destroyed or assigned to.
  MetricsWriter(MetricsWriter&&) noexcept;

  // The same.
  MetricsWriter& operator=(MetricsWriter&&) noexcept;

  ~MetricsWriter();  // what was written is in the file

  // One whole line in one write; Error when it cannot be written.
  void write(const Record& record);

  // The same for a JSON object of the program's own. ConfigError for what is not one.
  void write_json(const std::string& object);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein

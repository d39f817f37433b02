// Where the workers of a run on this host write what they print.
#pragma once

#include <string>

#include "core/file_descriptor.h"

namespace skein {

// A folder with rank-K.log for each worker that has no terminal.
class LogDirectory {
 public:
  // `path`, made where it does not exist; logs of an earlier run that lie there go to its folder
  // earlier-N, the next that is free. When empty, a fresh folder in $TMPDIR or /tmp (given as
  // `temporary_root`) that the destructor removes unless keep() was called.
  // Throws ConfigError when it cannot be made.
  LogDirectory(const std::string& path, const std::string& temporary_root);
  ~LogDirectory();
  LogDirectory(const LogDirectory&) = delete;
  LogDirectory& operator=(const LogDirectory&) = delete;

  void keep() { temporary_ = false; }
  std::string pattern() const;  // "/tmp/skein-x7Wq2B/rank-*.log"

  FileDescriptor open(int rank) const;  // a new one, for appending; throws ConfigError
  std::string tail(int rank) const;     // its last ten lines or 4,000 characters, or nothing

 private:
  std::string file(int rank) const;
  void put_earlier_ones_aside() const;

  std::string path_;
  bool temporary_ = false;
};

}  // namespace skein

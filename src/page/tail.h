// Reads a file of lines that somebody else appends to.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"

namespace skein {

// Not thread-safe.
class Tail {
 public:
  explicit Tail(std::filesystem::path path) : path_(std::move(path)) {}

  // Gives every line that is whole and new to `line`, without its end, up to `most` bytes of them.
  // A line whose end is not written yet waits for it. True when the file is another than before, or
  // was cut: then what was given before does not count, and its lines come from the beginning.
  // Where the file is not there nothing happens.
  bool read(const std::function<void(std::string_view)>& line, std::size_t most = 16 << 20);

  // Whether the path names a file that read() has not begun.
  bool replaced() const { return inode_at(path_) != 0 && !is(path_); }

  // Gives the rest of the file that read() has begun, whatever its name is by now.
  void read_rest(const std::function<void(std::string_view)>& line);

  // Whether that file's name is `path` now.
  bool is(const std::filesystem::path& path) const;

  // Since the file was written to last; large where there is none.
  std::chrono::seconds age() const;

  // Bytes that read() has not given yet.
  std::int64_t behind() const;

 private:
  static ino_t inode_at(const std::filesystem::path& path);  // 0: there is no file
  void read_lines(const std::function<void(std::string_view)>& line, std::size_t most);

  std::filesystem::path path_;
  FileDescriptor file_;
  ino_t inode_ = 0;
  off_t position_ = 0;  // of the first byte that is not in a line that was given
};

}  // namespace skein

// A file that appears whole or not at all; and what cannot be such a file is written as it comes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "core/checksum.h"
#include "core/clock.h"
#include "core/file_descriptor.h"

namespace skein {

// Whether AtomicFile makes or replaces a regular file for `path`. False: `path` leads to something
// else, such as a device, a pipe, or an open descriptor (/dev/stdout, /dev/fd/N).
bool appears_by_rename(const std::filesystem::path& path);

// The file that `path` leads to through symbolic links, which need not exist. Throws Error for
// links without an end.
std::filesystem::path followed(const std::filesystem::path& path);

// The number N where `path` leads to a descriptor of this process: /dev/stdout, /dev/fd/N,
// /proc/self/fd/N; -1 for everything else.
int own_descriptor(const std::filesystem::path& path);

// Written under a temporary name beside the file that `path` leads to; commit() gives it its name,
// replacing what was there. A symbolic link stays and leads to the new file. Without commit() the
// destructor removes the temporary file.
//
// What is no regular file is never replaced: bytes go to it as they are written, and commit() adds
// nothing. A named pipe is waited for until somebody reads from it, for `reader_limit`.
//
// Failures throw Error with the path and the reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, Duration reader_limit = std::chrono::seconds(10));
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);

  // A regular file and its name are on the disk when this returns.
  void commit();

  FileSum sum() const { return checksum_.sum(); }  // of what was written so far

 private:
  [[noreturn]] void fail(const char* operation) const;

  std::filesystem::path path_;       // as it was given, for messages
  std::filesystem::path target_;     // which it leads to
  std::filesystem::path temporary_;  // empty: bytes go straight to the target
  FileDescriptor file_;              // valid until commit()
  Checksum checksum_;
};

// A whole file at once.
FileSum write_whole(const std::filesystem::path& path, std::string_view text);

// Gives a finished folder its name, in the same parent, where it replaces what was there. The name
// is on the disk when this returns; what it replaced is removed only then.
void publish_folder(const std::filesystem::path& finished, const std::filesystem::path& path);

}  // namespace skein

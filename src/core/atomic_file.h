// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "core/checksum.h"
#include "core/file_descriptor.h"

namespace skein {

// Written under a temporary name beside `path`; commit() gives it its name, replacing what was
// there. Without commit() the destructor removes it. Failures throw Error with the path and the
// reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);

  // The file and its name are on the disk when this returns.
  void commit();

  FileSum sum() const { return checksum_.sum(); }  // of what was written so far

 private:
  [[noreturn]] void fail(const char* operation) const;

  std::filesystem::path path_, temporary_;
  FileDescriptor file_;  // valid until commit()
  Checksum checksum_;
};

// A whole file at once.
FileSum write_whole(const std::filesystem::path& path, std::string_view text);

// Gives a finished folder its name, in the same parent, where it replaces what was there. The name
// is on the disk when this returns; what it replaced is removed only then.
void publish_folder(const std::filesystem::path& finished, const std::filesystem::path& path);

}  // namespace skein

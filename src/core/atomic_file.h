// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

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

 private:
  [[noreturn]] void fail(const char* operation) const;

  std::filesystem::path path_, temporary_;
  FileDescriptor file_;  // valid until commit()
};

// A whole file at once.
void write_whole(const std::filesystem::path& path, std::string_view text);

}  // namespace skein

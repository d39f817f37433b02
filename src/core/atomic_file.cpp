#include "core/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "skein/error.h"

namespace skein {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  file_ =
      FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_.valid()) fail("create");
}

AtomicFile::~AtomicFile() {
  if (file_.valid()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_.get(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) fail("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  file_ = FileDescriptor();

  // The new name is an entry of the folder, which has to reach the disk, too.
  const auto folder = path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".");
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) fail("open the folder of");
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail("sync the folder of");
}

void AtomicFile::fail(const char* operation) const {
  throw Error(fmt::format("cannot {} '{}': {}", operation, path_.string(), std::strerror(errno)));
}

void write_whole(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace skein

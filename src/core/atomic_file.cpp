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
namespace {

[[noreturn]] void cannot(const char* operation, const std::filesystem::path& path) {
  throw Error(fmt::format("cannot {} '{}': {}", operation, path.string(), std::strerror(errno)));
}

// A name is an entry of its folder, which has to reach the disk, too.
void sync_folder_of(const std::filesystem::path& path) {
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.valid()) cannot("open the folder of", path);
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) cannot("sync the folder of", path);
}

}  // namespace

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
  checksum_.add(data, bytes);
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
  sync_folder_of(path_);
}

void AtomicFile::fail(const char* operation) const { cannot(operation, path_); }

FileSum write_whole(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
  return file.sum();
}

// Where the file system can exchange two names there is no moment without the folder.
void publish_folder(const std::filesystem::path& finished, const std::filesystem::path& path) {
  auto replaced = finished;
  const bool replaces = std::filesystem::exists(path);
  const bool exchanged = replaces && ::renameat2(AT_FDCWD, finished.c_str(), AT_FDCWD, path.c_str(),
                                                 RENAME_EXCHANGE) == 0;
  if (!exchanged) {
    replaced += "-replaced";
    std::filesystem::remove_all(replaced);
    if (replaces && ::rename(path.c_str(), replaced.c_str()) != 0) cannot("rename", path);
    if (::rename(finished.c_str(), path.c_str()) != 0) cannot("rename", finished);
  }
  sync_folder_of(path);
  if (path.has_parent_path()) sync_folder_of(path.parent_path());  // it may be new itself
  if (replaces) std::filesystem::remove_all(replaced);
}

}  // namespace skein

#include "core/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "core/parse_number.h"
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

// What a path leads to.
struct Target {
  std::filesystem::path path;
  int own = -1;           // a descriptor of this process
  bool straight = false;  // not a regular file, which could be replaced
};

// Links are followed one by one: a descriptor's entry in /proc is one too, but leads to a file that
// may have no name any more, or is not to be replaced under whoever has it open.
Target target_of(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code none;
  const fs::path own_folder = fs::canonical("/proc/self/fd", none);
  fs::path at = path;
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code no_folder;
    const fs::path folder = fs::canonical(at.has_parent_path() ? at.parent_path() : ".", no_folder);
    const std::string name = at.filename().string();
    if (!no_folder && folder.filename() == "fd" && folder.string().starts_with("/proc/")) {
      int number = -1;
      const bool own = folder == own_folder && parse_number(name, number);
      return {at, own ? number : -1, true};
    }
    struct stat about {};
    if (::lstat(at.c_str(), &about) != 0 || S_ISREG(about.st_mode)) return {at, -1, false};
    if (!S_ISLNK(about.st_mode)) return {at, -1, true};
    const fs::path next = fs::read_symlink(at, none);
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  errno = ELOOP;
  cannot("follow", path);
}

// Opening a pipe that nobody reads from would block for ever.
int open_pipe(const std::filesystem::path& path, Duration longest) {
  constexpr auto kPause = std::chrono::milliseconds(10);
  const SteadyClock clock;
  const Time until = clock.now() + longest;
  for (;;) {
    const int pipe = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe >= 0) ::fcntl(pipe, F_SETFL, ::fcntl(pipe, F_GETFL) & ~O_NONBLOCK);
    if (pipe >= 0 || errno != ENXIO) return pipe;
    if (clock.now() >= until)
      throw Error(fmt::format("cannot write '{}': nobody has opened this pipe to read from it",
                              path.string()));
    std::this_thread::sleep_for(kPause);
  }
}

int open_straight(const Target& target, Duration reader_limit) {
  if (target.own >= 0) return ::fcntl(target.own, F_DUPFD_CLOEXEC, 0);
  struct stat about {};
  if (::stat(target.path.c_str(), &about) == 0 && S_ISFIFO(about.st_mode))
    return open_pipe(target.path, reader_limit);
  return ::open(target.path.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

bool appears_by_rename(const std::filesystem::path& path) { return !target_of(path).straight; }

std::filesystem::path followed(const std::filesystem::path& path) { return target_of(path).path; }

int own_descriptor(const std::filesystem::path& path) { return target_of(path).own; }

AtomicFile::AtomicFile(std::filesystem::path path, Duration reader_limit) : path_(std::move(path)) {
  Target target = target_of(path_);
  if (target.straight) {
    file_ = FileDescriptor(open_straight(target, reader_limit));
    if (!file_.valid()) fail("open");
    return;
  }
  target_ = std::move(target.path);
  temporary_ = target_;
  temporary_ += fmt::format(".tmp-{}", ::getpid());
  file_ =
      FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file_.valid()) fail("create");
}

AtomicFile::~AtomicFile() {
  if (file_.valid() && !temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  checksum_.add(data, bytes);
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file_.get(), next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // whoever shares the descriptor made it non-blocking
      pollfd room{file_.get(), POLLOUT, 0};
      ::poll(&room, 1, -1);
      continue;
    }
    if (written < 0) fail("write");
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    file_ = FileDescriptor();
    return;
  }
  if (::fsync(file_.get()) != 0) fail("write");
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename");
  file_ = FileDescriptor();
  sync_folder_of(target_);
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

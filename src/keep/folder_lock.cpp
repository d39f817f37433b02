#include "keep/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kMostText = 4096;
constexpr long kLeader = 0, kAll = 1, kBoth = 2;  // which byte, and how many there are

struct flock range_of(short type, long from, long count) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = from;
  range.l_len = count;
  return range;
}

FileDescriptor open_lock(const std::filesystem::path& file) {
  FileDescriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!opened.valid())
    throw Error(fmt::format("cannot open '{}': {}", file.string(), std::strerror(errno)));
  return opened;
}

std::string own_host() {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  return host;
}

LockHolder read_once(int file) {
  char text[kMostText];
  const ssize_t count = ::pread(file, text, sizeof text, 0);
  const auto json = nlohmann::json::parse(text, text + std::max<ssize_t>(count, 0), nullptr, false);
  LockHolder holder;
  if (!json.is_object()) return holder;
  const auto read = [&](const char* key, std::string& into) {
    if (json.contains(key) && json[key].is_string()) into = json[key].get<std::string>();
  };
  read("run", holder.run);
  read("host", holder.host);
  read("since", holder.since);
  if (json.contains("pid") && json["pid"].is_number_integer()) holder.pid = json["pid"].get<long>();
  return holder;
}

// Whether the text is of an earlier holder, or of none. Processes of other hosts cannot be asked.
bool is_outdated(const LockHolder& holder) {
  if (holder.host.empty()) return true;
  return holder.host == own_host() && ::kill(static_cast<pid_t>(holder.pid), 0) != 0 &&
         errno == ESRCH;
}

// A holder writes its name after it has got the lock: until then the text is outdated.
LockHolder read_holder(int file) {
  constexpr int kTries = 20;
  LockHolder holder = read_once(file);
  for (int tries = 1; tries < kTries && is_outdated(holder); ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    holder = read_once(file);
  }
  return holder;
}

// Opens without writing: others may look at a run, and mounts may be read-only.
FileDescriptor open_if_held(const std::filesystem::path& file) {
  FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock range = range_of(F_WRLCK, kLeader, kBoth);
  if (!opened.valid() || ::fcntl(opened.get(), F_OFD_GETLK, &range) != 0 || range.l_type == F_UNLCK)
    return {};
  return opened;
}

}  // namespace

std::string LockHolder::text() const {
  if (host.empty()) return "a process that the lock file does not name";
  return fmt::format("process {} on host {}, since {}", pid, host, since);
}

// False: somebody else holds what would conflict.
bool FolderLock::set(short type, long from, long count) {
  struct flock range = range_of(type, from, count);
  while (::fcntl(file_.get(), F_OFD_SETLK, &range) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    missing_ = std::strerror(errno);
    break;
  }
  return true;
}

std::optional<LockHolder> FolderLock::take(const std::filesystem::path& file,
                                           const std::string& run) {
  FolderLock fresh;
  fresh.file_ = open_lock(file);
  if (!fresh.set(F_WRLCK, kLeader, kBoth)) return read_holder(fresh.file_.get());
  fresh.set(F_RDLCK, kAll, 1);
  fresh.leads_ = true;
  fresh.name(run);
  *this = std::move(fresh);
  return {};
}

void FolderLock::join(const std::filesystem::path& file) {
  file_ = open_lock(file);
  leads_ = false;
  set(F_RDLCK, kAll, 1);
}

void FolderLock::lead(const std::string& run) {
  leads_ = true;
  if (!file_.valid()) return;
  set(F_WRLCK, kLeader, 1);
  name(run);
}

// The text is for people: where it cannot be written the lock holds all the same. Readers need no
// lock, so the file is never empty: the new text covers the old one before the file is cut.
void FolderLock::name(const std::string& run) {
  const nlohmann::json json{
      {"run", run},
      {"host", own_host()},
      {"pid", ::getpid()},
      {"since", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))}};
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::size_t length = text.size();
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return;
  const auto before = std::min(static_cast<std::size_t>(status.st_size), kMostText);
  text.resize(std::max(length, before), ' ');
  if (::pwrite(file_.get(), text.data(), text.size(), 0) < 0 ||
      ::ftruncate(file_.get(), static_cast<off_t>(length)) != 0)
    return;
  ::fdatasync(file_.get());  // other hosts see it now, not when the file is closed
}

bool is_held(const std::filesystem::path& file) { return open_if_held(file).valid(); }

std::optional<LockHolder> holder_of(const std::filesystem::path& file) {
  const FileDescriptor opened = open_if_held(file);
  if (!opened.valid()) return {};
  return read_holder(opened.get());
}

}  // namespace skein

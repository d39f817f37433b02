#include "page/tail.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace skein {

bool Tail::read(const std::function<void(std::string_view)>& line, std::size_t most) {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return false;
  bool anew = false;
  if (!file_.valid() || now.st_ino != inode_ || now.st_size < position_) {
    FileDescriptor opened(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.valid() || ::fstat(opened.get(), &now) != 0) return false;
    anew = file_.valid();
    file_ = std::move(opened);
    inode_ = now.st_ino;
    position_ = 0;
  }
  read_lines(line, most);
  return anew;
}

void Tail::read_rest(const std::function<void(std::string_view)>& line) {
  if (file_.valid()) read_lines(line, std::numeric_limits<std::size_t>::max());
}

void Tail::read_lines(const std::function<void(std::string_view)>& line, std::size_t most) {
  std::vector<char> bytes;
  constexpr std::size_t kPiece = 1 << 20;
  for (std::size_t given = 0; given < most;) {
    std::size_t have = 0;
    // A line longer than a piece needs more of them.
    for (;;) {
      bytes.resize(have + kPiece);
      const ssize_t got =
          ::pread(file_.get(), bytes.data() + have, kPiece, position_ + static_cast<off_t>(have));
      if (got <= 0) return;
      const std::string_view fresh(bytes.data() + have, static_cast<std::size_t>(got));
      have += fresh.size();
      if (fresh.find('\n') != std::string_view::npos) break;
    }
    std::string_view rest(bytes.data(), have);
    for (std::size_t end = 0; (end = rest.find('\n')) != std::string_view::npos;) {
      if (end > 0) line(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      position_ += static_cast<off_t>(end + 1);
      given += end + 1;
    }
  }
}

bool Tail::is(const std::filesystem::path& path) const {
  return file_.valid() && inode_at(path) == inode_;
}

ino_t Tail::inode_at(const std::filesystem::path& path) {
  struct stat now {};
  return ::stat(path.c_str(), &now) == 0 ? now.st_ino : 0;
}

std::chrono::seconds Tail::age() const {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return std::chrono::seconds::max();
  return std::chrono::seconds(::time(nullptr) - now.st_mtime);
}

std::int64_t Tail::behind() const {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return 0;
  return std::max<std::int64_t>(0, now.st_size - position_);
}

}  // namespace skein

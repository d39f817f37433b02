#include "launch/outbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "core/descriptor_limit.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kWorthMoving = std::size_t{1} << 16;

// Nobody is killed for writing to a socket whose other end has gone.
ssize_t write_some(int descriptor, std::string_view bytes) {
  const ssize_t count = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0 || errno != ENOTSOCK) return count;
  return ::write(descriptor, bytes.data(), bytes.size());
}

bool has_room(int descriptor) {
  pollfd watched{descriptor, POLLOUT, 0};
  return ::poll(&watched, 1, 0) > 0;
}

}  // namespace

std::string_view Outbox::next_piece() const {
  std::string_view out = std::string_view(pending_).substr(written_);
  if (out.size() <= PIPE_BUF) return out;
  out = out.substr(0, PIPE_BUF);
  const std::size_t line = out.rfind('\n');
  return line == std::string_view::npos ? out : out.substr(0, line + 1);
}

bool Outbox::flush() {
  if (size() == 0) return true;
  if (descriptor_ < 0) {
    clear();
    return false;
  }
  const bool may_block = (::fcntl(descriptor_, F_GETFL) & O_NONBLOCK) == 0;
  while (size() > 0) {
    if (may_block && !has_room(descriptor_)) break;
    const ssize_t count = write_some(descriptor_, next_piece());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) {
      clear();
      return false;
    }
    written_ += static_cast<std::size_t>(count);
  }
  if (size() == 0) {
    clear();
  } else if (written_ >= kWorthMoving) {
    pending_.erase(0, written_);
    written_ = 0;
  }
  return true;
}

void Outbox::clear() {
  pending_.clear();
  written_ = 0;
}

void make_nonblocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

// A pipe or a terminal that is opened once more has flags of its own. Others, such as sockets,
// cannot be opened, or would lose their place in the file.
FileDescriptor copy_for_writing(int descriptor) {
  struct stat status {};
  const bool pipe = ::fstat(descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
  if (pipe || ::isatty(descriptor) == 1) {
    const std::string path = fmt::format("/proc/self/fd/{}", descriptor);
    FileDescriptor own(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (own.valid()) return own;
  }
  FileDescriptor out(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (!out.valid())
    throw Error(fmt::format("cannot copy descriptor {}: {}", descriptor, system_error_text(errno)));
  return out;
}

}  // namespace skein

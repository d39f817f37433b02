#include "launch/outbox.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace skein {
namespace {

// Nobody is killed for writing to a socket whose other end has gone.
ssize_t write_some(int descriptor, std::string_view bytes) {
  const ssize_t count = ::send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (count >= 0 || errno != ENOTSOCK) return count;
  return ::write(descriptor, bytes.data(), bytes.size());
}

}  // namespace

bool Outbox::flush() {
  while (size() > 0) {
    const ssize_t count = write_some(descriptor_, std::string_view(pending_).substr(written_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count < 0) {
      pending_.clear();
      written_ = 0;
      return false;
    }
    written_ += static_cast<std::size_t>(count);
  }
  pending_.clear();
  written_ = 0;
  return true;
}

void make_nonblocking(int descriptor) {
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
}

}  // namespace skein

#include "fabric/tcp/intake.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace skein::tcp {

void Intake::read_ahead(std::size_t bytes) {
  ahead_.erase(ahead_.begin() + static_cast<std::ptrdiff_t>(end_), ahead_.end());
  ahead_.erase(ahead_.begin(), ahead_.begin() + static_cast<std::ptrdiff_t>(at_));
  end_ -= std::exchange(at_, 0);
  ahead_.resize(std::max(bytes, end_));
  ahead_.shrink_to_fit();
}

ssize_t Intake::read(void* into, std::size_t bytes) {
  if (at_ < end_) {
    const std::size_t there = std::min(bytes, end_ - at_);
    std::memcpy(into, ahead_.data() + at_, there);
    at_ += there;
    return static_cast<ssize_t>(there);
  }
  std::array<iovec, 2> parts{iovec{into, bytes}, iovec{ahead_.data(), ahead_.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t got = ::recvmsg(socket_, &message, 0);
  if (got <= static_cast<ssize_t>(bytes)) return got;
  at_ = 0;
  end_ = static_cast<std::size_t>(got) - bytes;
  return static_cast<ssize_t>(bytes);
}

}  // namespace skein::tcp

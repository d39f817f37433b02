#include "fabric/tcp/stream.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "fabric/tcp/errors.h"

namespace skein::tcp {
namespace {

// Encrypted at once and sent with one call: enough that the calls do not count.
constexpr std::size_t kBatch = std::size_t{128} * 1024;

// Read with one call: some records of TLS, which are copied once more then; in clear no more than
// the header that follows a body.
constexpr std::size_t kAhead = std::size_t{64} * 1024, kAheadInClear = 64;

// AES-GCM loses its margin after some 2^24 records of 16 KiB under one key.
constexpr std::uint64_t kMostUnderOneKey = std::uint64_t{1} << 36;

[[noreturn]] void ended(const std::string& how) { throw ConnectionEnded(how); }

bool nothing_now() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Stream::Stream(Poller& poller, FileDescriptor socket, const Tls& tls, Side side)
    : poller_(poller),
      tls_(tls),
      socket_(std::move(socket)),
      in_(socket_.get(), kAhead),
      session_(tls.begin(side, in_, out_)),
      id_(poller.add(socket_.get(), *this)) {}

Stream::~Stream() { poller_.remove(id_, socket_.get()); }

void Stream::ready() {
  if (on_ready) on_ready();
}

bool Stream::handshake() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(session_.get());
  const int error = ::SSL_get_error(session_.get(), result);
  if (result == 1) {
    flush();
    if (!tls_.authenticated(*session_)) throw NotAuthenticated("it did not show who it is");
    return true;
  }
  if (error == SSL_ERROR_WANT_READ) {
    flush();
    return false;
  }
  const std::string why = error == SSL_ERROR_SSL ? tls_.trouble(*session_) : "";
  try {
    flush();  // which tells the other side
  } catch (const IoError&) {
  }
  if (!why.empty()) throw NotAuthenticated(why);
  ended("the connection was closed");
}

void Stream::go_on_in_clear() {
  SKEIN_CHECK(out_.empty(), "{} bytes are still to be sent encrypted", out_.size());
  in_.read_ahead(kAheadInClear);
  session_.reset();
}

std::size_t Stream::read(void* into, std::size_t bytes) {
  if (!session_) {
    const ssize_t got = in_.read(into, bytes);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got < 0 && nothing_now()) return 0;
    ended(got == 0 ? "the connection was closed" : std::strerror(errno));
  }
  ::ERR_clear_error();
  std::size_t got = 0;
  const int result = ::SSL_read_ex(session_.get(), into, bytes, &got);
  if (result == 1) {
    heard_ = true;
    return got;
  }
  switch (::SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return 0;
    case SSL_ERROR_SYSCALL:
      ended(errno == 0 ? "the connection was closed" : std::strerror(errno));
    case SSL_ERROR_ZERO_RETURN:
      ended("the connection was closed");
    default:
      if (!heard_ && told_by_the_other_side()) throw NotAuthenticated(tls_.trouble(*session_));
      ended(tls_error());
  }
}

std::size_t Stream::write(std::span<const iovec> parts) {
  return session_ ? write_encrypted(parts) : write_clear(parts);
}

std::size_t Stream::write_encrypted(std::span<const iovec> parts) {
  std::size_t taken = 0;
  for (const iovec& part : parts) {
    for (std::size_t at = 0; at < part.iov_len;) {
      if (out_.size() >= kBatch && !flush()) return taken;
      const std::size_t bytes = std::min(part.iov_len - at, kBatch / 2);
      encrypt(static_cast<const char*>(part.iov_base) + at, bytes);
      at += bytes;
      taken += bytes;
    }
  }
  return taken;
}

void Stream::encrypt(const char* data, std::size_t bytes) {
  ::ERR_clear_error();
  under_this_key_ += bytes;
  if (under_this_key_ > kMostUnderOneKey &&
      ::SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
    under_this_key_ = 0;
  std::size_t written = 0;
  if (::SSL_write_ex(session_.get(), data, bytes, &written) != 1) ended(tls_error());
  SKEIN_CHECK(written == bytes, "{} bytes of {} encrypted", written, bytes);
}

std::size_t Stream::write_clear(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());
  message.msg_iovlen = parts.size();
  const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (nothing_now()) return 0;
  ended(std::strerror(errno));
}

void Stream::give_up_after(Duration time) {
  const auto ms =
      static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

// More is encrypted only when all has been sent: so nothing is ever moved inside the buffer.
bool Stream::flush() {
  while (sent_ < out_.size()) {
    const ssize_t sent =
        ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && nothing_now()) return false;
    if (sent < 0) ended(std::strerror(errno));
    sent_ += static_cast<std::size_t>(sent);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

}  // namespace skein::tcp

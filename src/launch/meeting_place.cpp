#include "launch/meeting_place.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "skein/error.h"

namespace skein {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw Error(
      fmt::format("cannot prepare a meeting of workers: {}: {}", what, std::strerror(errno)));
}

sockaddr_storage address_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("getsockname");
  return address;
}

}  // namespace

std::string fresh_secret() {
  std::string secret(32, '\0');
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    fail("getrandom");
  // A line break at the end would not count.
  if (secret.back() == '\n') secret.back() = 0;
  return secret;
}

HeldPort::HeldPort(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &first);
  if (code != 0) throw Error(fmt::format("no address of '{}': {}", host, ::gai_strerror(code)));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(first, &::freeaddrinfo);
  // The first address, as rank 0 takes it.
  socket_ = FileDescriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_.valid()) fail("socket");
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket_.get(), found->ai_addr, found->ai_addrlen) != 0)
    fail(fmt::format("no port at '{}'", host));
}

std::uint16_t HeldPort::port() const {
  const sockaddr_storage address = address_of(socket_.get());
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool HeldPort::loopback() const {
  const sockaddr_storage address = address_of(socket_.get());
  if (address.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
  const auto number = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return number >> 24 == IN_LOOPBACKNET;
}

SecretFile::SecretFile(const std::string& secret)
    : file_(::memfd_create("skein-secret", MFD_CLOEXEC)) {
  if (!file_.valid() || ::fchmod(file_.get(), 0600) != 0 ||
      ::write(file_.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail("memfd_create");
}

std::string SecretFile::path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }

std::string MeetingPlace::rendezvous() const { return fmt::format("127.0.0.1:{}", port_.port()); }

}  // namespace skein

#include "launch/meeting_place.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "skein/error.h"

namespace skein {
namespace {

[[noreturn]] void fail(const char* what) {
  throw Error(
      fmt::format("cannot prepare a meeting of workers: {}: {}", what, std::strerror(errno)));
}

// Bound, and not listening: with SO_REUSEADDR on both, rank 0 can listen there and others get
// another port.
FileDescriptor reserve_port() {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) fail("socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail("bind");
  return socket;
}

FileDescriptor make_secret() {
  std::array<char, 32> secret;
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    fail("getrandom");
  // A line break at the end would not count.
  if (secret.back() == '\n') secret.back() = 0;
  FileDescriptor file(::memfd_create("skein-secret", MFD_CLOEXEC));
  if (!file.valid() || ::fchmod(file.get(), 0600) != 0 ||
      ::write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
    fail("memfd_create");
  return file;
}

}  // namespace

MeetingPlace::MeetingPlace() : port_(reserve_port()), secret_(make_secret()) {}

std::string MeetingPlace::rendezvous() const {
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  if (::getsockname(port_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    fail("getsockname");
  return fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
}

std::string MeetingPlace::secret_file() const {
  return fmt::format("/proc/self/fd/{}", secret_.get());
}

}  // namespace skein

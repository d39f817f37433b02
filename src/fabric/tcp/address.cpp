#include "fabric/tcp/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/check.h"
#include "core/descriptor_limit.h"
#include "core/parse_number.h"
#include "skein/error.h"

namespace skein::tcp {
namespace {

// What waits in the kernel to be sent. Small messages wait behind it, so it is as much as hides the
// time until this worker gets to send more, and no more.
constexpr int kMostUnsent = 256 * 1024;

[[noreturn]] void fail(const std::string& what) {
  throw IoError(fmt::format("{}: {}", what, system_error_text(errno)));
}

using Found = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Found look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) throw IoError(fmt::format("no address of '{}': {}", host, ::gai_strerror(code)));
  return {found, &::freeaddrinfo};
}

Address copy_of(const addrinfo& info) {
  Address out;
  SKEIN_CHECK(info.ai_addrlen <= sizeof(out.storage), "an address of {} bytes", info.ai_addrlen);
  std::memcpy(&out.storage, info.ai_addr, info.ai_addrlen);
  out.length = info.ai_addrlen;
  return out;
}

}  // namespace

HostPort parse_host_port(const std::string& text) {
  const auto refuse = [&]() -> HostPort {
    throw ConfigError(fmt::format(
        "'{}': expected HOST:PORT, as 10.0.0.7:29500, gpu3:29500 or [fe80::1%eth0]:29500", text));
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return refuse();
  std::string host = text.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  std::uint16_t port = 0;
  if (host.empty() || (!bracketed && host.find(':') != std::string::npos) ||
      !parse_number(std::string_view(text).substr(colon + 1), port) || port == 0)
    return refuse();
  return {host, port};
}

std::string Address::number() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text,
                sizeof(text));
  else
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text,
                sizeof(text));
  return text;
}

bool Address::link_local() const {
  return storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

void Address::take_interface_of(const Address& other) {
  if (!link_local() || !other.link_local()) return;
  auto& scope = reinterpret_cast<sockaddr_in6&>(storage).sin6_scope_id;
  if (scope == 0) scope = reinterpret_cast<const sockaddr_in6&>(other.storage).sin6_scope_id;
}

std::string Address::host() const {
  const std::uint32_t scope =
      link_local() ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_scope_id : 0;
  if (scope == 0) return number();
  char name[IF_NAMESIZE] = "";
  if (::if_indextoname(scope, name) == nullptr) return fmt::format("{}%{}", number(), scope);
  return fmt::format("{}%{}", number(), name);
}

std::uint16_t Address::port() const {
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void Address::set_port(std::uint16_t port) {
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
}

std::string Address::text() const {
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port())
                                       : fmt::format("{}:{}", host(), port());
}

std::vector<Address> resolve(const HostPort& where) {
  const Found found = look_up(where.host, where.port, 0);
  std::vector<Address> out;
  for (const addrinfo* each = found.get(); each; each = each->ai_next)
    out.push_back(copy_of(*each));
  return out;
}

Address numeric_address(const std::string& host, std::uint16_t port) {
  return copy_of(*look_up(host, port, AI_NUMERICHOST));
}

Address local_address(int socket) {
  Address out;
  out.length = sizeof(out.storage);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&out.storage), &out.length) != 0)
    fail("getsockname");
  return out;
}

Address remote_address(int socket) {
  Address out;
  out.length = sizeof(out.storage);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&out.storage), &out.length) != 0)
    fail("getpeername");
  return out;
}

FileDescriptor new_socket(const Address& address) {
  FileDescriptor out(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!out.valid()) fail("socket");
  never_delay(out.get());
  return out;
}

void never_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof(kMostUnsent));
}

FileDescriptor listen_at(const Address& address) {
  FileDescriptor out = new_socket(address);
  const int on = 1;
  ::setsockopt(out.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(out.get(), address.raw(), address.length) != 0 || ::listen(out.get(), SOMAXCONN) != 0)
    fail(fmt::format("cannot listen at {}", address.text()));
  return out;
}

}  // namespace skein::tcp

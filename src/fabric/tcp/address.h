// Where a worker can be reached, and sockets that reach it.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace skein::tcp {

// A name or a number, and a port: "10.0.0.7:29500", "[::1]:29500", "gpu3:29500". A link-local
// number says through which interface of this host it is reached: "[fe80::1%eth0]:29500".
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};

// Throws ConfigError for anything else.
HostPort parse_host_port(const std::string& text);

// What the system calls an address.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::string number() const;  // without brackets and interface
  std::string host() const;    // the number, with the interface where it is link-local
  std::uint16_t port() const;
  std::string text() const;  // as parse_host_port reads it
  void set_port(std::uint16_t port);

  // Whether it means something only together with an interface of this host: fe80::/10.
  bool link_local() const;

  // Gives a link-local address without an interface the one that `other` has.
  void take_interface_of(const Address& other);
};

// All addresses of a host. Throws IoError when nobody knows it.
std::vector<Address> resolve(const HostPort& where);

// The only address that a number stands for. Throws IoError when `host` is not a number.
Address numeric_address(const std::string& host, std::uint16_t port);

Address local_address(int socket);
Address remote_address(int socket);

// A socket that never blocks and sends without delay.
FileDescriptor new_socket(const Address& address);
void never_delay(int socket);

// Listens at `address` and nowhere else; port 0: at a free one. Throws IoError.
FileDescriptor listen_at(const Address& address);

}  // namespace skein::tcp

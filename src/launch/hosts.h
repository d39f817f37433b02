// The hosts of a run, as the user names them.
#pragma once

#include <string>
#include <vector>

namespace skein {

struct Host {
  std::string name;  // as ssh is told: NAME or USER@NAME; a number of IPv6 without brackets
  int workers = 1;

  std::string address() const;  // without USER@
};

inline constexpr int kMostHosts = 1024, kMostWorkersOfARun = 4096;

// "a,b:4,me@c,[fe80::1]:2". ConfigError, which says what is wrong with which of them, for names
// that are no names of hosts (so none that begins with a dash), numbers of workers that are not in
// 1..most_per_host, a host that is there twice, and an empty list.
std::vector<Host> parse_hosts(const std::string& list, int most_per_host);

// One "HOST [WORKERS]" per line; # begins a comment. Also ConfigError when it cannot be read.
std::vector<Host> read_host_file(const std::string& path, int most_per_host);

int total_workers(const std::vector<Host>& hosts);

// Whether the name alone says that only this host means itself by it.
bool names_loopback(const std::string& address);

// Whether `name` is this host's own, or loopback's; never with USER@.
bool is_this_host(const std::string& name);

// Whether an address is HOST:PORT, and not HOST alone.
bool has_port(const std::string& address);

// ADDRESS:PORT, with brackets where the address is a number of IPv6.
std::string join_host_port(const std::string& address, int port);

}  // namespace skein

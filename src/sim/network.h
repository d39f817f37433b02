// What a virtual network is like: numbers only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/clock.h"

namespace skein::sim {

// One directed connection between hosts that is worse than what both ends could do.
struct LinkOverride {
  int from = -1, to = -1;  // hosts; -1: any
  double bytes_per_second = 0;
  Duration latency{-1};  // negative: the network's
};

// Every host has one full-duplex connection to a network that is never itself the limit. A message
// takes `latency` from its first byte sent to its first byte received; concurrent messages share
// the connections they pass fairly. Workers of one host reach each other by memory.
struct Network {
  std::string name = "10gbe";
  double bytes_per_second = 0;  // of a host, each direction
  Duration latency{};           // of every message between hosts
  Duration jitter{};            // mean of a random extra delay of each such message
  double local_bytes_per_second = 10e9;
  Duration local_latency = std::chrono::microseconds(6);
  std::size_t chunk_bytes = std::size_t{1} << 16;  // least piece of a ring's part; 0: parts whole
  int workers_per_host = 1;
  bool two_levels = true;  // collectives where several hosts have several workers (fabric/levels.h)
  std::vector<LinkOverride> links;
};

std::vector<std::string> network_names();

// A preset, or a preset with changes: "10gbe:latency=30us,jitter=5us". Keys: bandwidth, latency,
// jitter, local_bandwidth, local_latency, chunk (bytes, or "none"). The preset "link" has no
// numbers of its own: bandwidth must be given. Throws ConfigError.
Network parse_network(const std::string& text);

// Lines of "FROM TO BANDWIDTH [LATENCY]": host numbers or *, such as "0 3 100mbit 2ms". Later lines
// win; # begins a comment. `hosts` is how many there are. Throws ConfigError with the line's
// number.
std::vector<LinkOverride> read_links(const std::filesystem::path& path, int hosts);

}  // namespace skein::sim

#include "sim/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <sstream>

#include "core/parse_number.h"
#include "core/spec.h"
#include "core/units.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

using namespace std::chrono_literals;

struct Preset {
  const char* name;
  double bytes_per_second;
  Duration latency, jitter;
};

// 10gbe and 100gib are what a published cluster of 16 hosts with 4 GPUs each measured: its
// all-reduces at 64 workers cost 1.70e-9 and 5.9e-10 s per byte, that is 2 · 63/64 over these, and
// start-ups of a few ms and of 0.8 ms. The others are what TCP leaves of the line rate (94 %).
constexpr Preset kPresets[] = {
    {"1gbe", 117.5e6, 50us, 0us},  {"10gbe", 1.158e9, 50us, 0us}, {"25gbe", 2.94e9, 30us, 0us},
    {"100gib", 3.337e9, 6us, 0us}, {"wan", 11.75e6, 20ms, 1ms},   {"link", 0, 0us, 0us},
};

std::size_t parse_chunk(const std::string& text, const Spec& spec) {
  try {
    return std::max<std::size_t>(parse_bytes(text), 64);
  } catch (const ConfigError& error) {
    spec.fail(fmt::format("chunk: {}, or none", error.what()));
  }
}

}  // namespace

std::vector<std::string> network_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Network parse_network(const std::string& text) {
  Spec spec("--network", text);
  Network network;
  network.name = "";
  for (const Preset& preset : kPresets)
    if (spec.name() == preset.name) {
      network.name = preset.name;
      network.bytes_per_second = preset.bytes_per_second;
      network.latency = preset.latency;
      network.jitter = preset.jitter;
    }
  if (network.name.empty())
    spec.fail(
        fmt::format("there is no such network: expected {}, or one of them with changes, "
                    "such as 10gbe:latency=30us",
                    fmt::join(network_names(), ", ")));
  network.bytes_per_second = spec.bandwidth("bandwidth", network.bytes_per_second);
  network.latency = spec.duration("latency", network.latency);
  network.jitter = spec.duration("jitter", network.jitter);
  network.local_bytes_per_second =
      spec.bandwidth("local_bandwidth", network.local_bytes_per_second);
  network.local_latency = spec.duration("local_latency", network.local_latency);
  const std::string chunk = spec.text("chunk", "");
  if (chunk == "none")
    network.chunk_bytes = 0;
  else if (!chunk.empty())
    network.chunk_bytes = parse_chunk(chunk, spec);
  spec.finish();
  if (network.bytes_per_second <= 0) spec.require("bandwidth");
  if (network.bytes_per_second <= 0 || network.local_bytes_per_second <= 0)
    spec.fail("expected a bandwidth above 0");
  return network;
}

namespace {

int parse_host(const std::string& text, int hosts, const std::string& where) {
  if (text == "*") return -1;
  int host = -1;
  if (!parse_number(text, host) || host < 0 || host >= hosts)
    throw ConfigError(
        fmt::format("{}: '{}': expected a host from 0 to {}, or *", where, text, hosts - 1));
  return host;
}

}  // namespace

std::vector<LinkOverride> read_links(const std::filesystem::path& path, int hosts) {
  std::ifstream file(path);
  if (!file) throw ConfigError(fmt::format("{}: cannot be read", path.string()));
  std::vector<LinkOverride> links;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string where = fmt::format("{}:{}", path.string(), number);
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (fields.empty()) continue;
    if (fields.size() < 3 || fields.size() > 4)
      throw ConfigError(fmt::format("{}: expected FROM TO BANDWIDTH [LATENCY]", where));
    LinkOverride link{parse_host(fields[0], hosts, where), parse_host(fields[1], hosts, where)};
    try {
      link.bytes_per_second = parse_bandwidth(fields[2]);
      if (fields.size() == 4) link.latency = parse_duration(fields[3]);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", where, error.what()));
    }
    if (link.bytes_per_second <= 0)
      throw ConfigError(fmt::format("{}: {}: expected a bandwidth above 0", where, fields[2]));
    links.push_back(link);
  }
  return links;
}

}  // namespace skein::sim

#include "launch/hosts.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/parse_number.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
constexpr std::size_t kLongestName = 255;

bool made_of(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kLetters.find(c) != std::string_view::npos || more.find(c) != std::string_view::npos;
  });
}

// What is printed of a text that may hold anything.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return out;
}

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) return false;
  const std::size_t at = name.find('@');
  if (at != std::string_view::npos) {
    const std::string_view user = name.substr(0, at);
    if (user.empty() || user.front() == '-' || !made_of(user, "_.-")) return false;
    name.remove_prefix(at + 1);
  }
  // A name of the network or of ssh's own configuration, or a number.
  return !name.empty() && name.front() != '-' && name.front() != '.' && made_of(name, "_.-");
}

bool is_ipv6(std::string_view text) {
  return text.size() <= kLongestName && text.find(':') != std::string_view::npos &&
         text.front() != '-' && made_of(text, ":.%");
}

Host checked(const std::string& text, std::string_view name, std::string_view workers,
             int most_per_host) {
  Host host;
  const bool bracketed = name.size() > 2 && name.front() == '[' && name.back() == ']';
  host.name = bracketed ? name.substr(1, name.size() - 2) : name;
  if (bracketed ? !is_ipv6(host.name) : !is_name(name))
    throw ConfigError(fmt::format(
        "'{}' is no host: expected NAME, USER@NAME or a number, and a colon and a number of "
        "workers where there are several, as in a,b:4,[fe80::1]:2",
        shown(text)));
  if (!workers.empty() &&
      (!parse_number(workers, host.workers) || host.workers < 1 || host.workers > most_per_host))
    throw ConfigError(fmt::format("host '{}' with '{}' workers: expected a number from 1 to {}",
                                  host.name, shown(workers), most_per_host));
  return host;
}

Host parse_host(const std::string& text, int most_per_host) {
  const std::string_view all = text;
  const std::size_t colon = all.rfind(':');
  const std::size_t bracket = all.rfind(']');
  const bool counted =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!counted) return checked(text, all, "", most_per_host);
  const std::string_view workers = all.substr(colon + 1);
  return checked(text, all.substr(0, colon), workers.empty() ? "nothing" : workers, most_per_host);
}

void check_all(const std::vector<Host>& hosts) {
  if (hosts.empty()) throw ConfigError("no hosts: expected at least one, as in a,b:4,c");
  if (hosts.size() > static_cast<std::size_t>(kMostHosts))
    throw ConfigError(fmt::format("{} hosts: expected at most {}", hosts.size(), kMostHosts));
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (const Host& host : hosts) names.push_back(host.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    throw ConfigError(fmt::format(
        "host '{0}' is there twice: expected once, and '{0}:2' for two workers on it", *twice));
  if (total_workers(hosts) > kMostWorkersOfARun)
    throw ConfigError(fmt::format("{} workers on all hosts: expected at most {}",
                                  total_workers(hosts), kMostWorkersOfARun));
}

}  // namespace

std::string Host::address() const { return name.substr(name.find('@') + 1); }

std::vector<Host> parse_hosts(const std::string& list, int most_per_host) {
  std::vector<Host> hosts;
  std::string_view rest = list;
  while (!list.empty() && hosts.size() <= static_cast<std::size_t>(kMostHosts)) {
    const std::size_t comma = rest.find(',');
    hosts.push_back(parse_host(std::string(rest.substr(0, comma)), most_per_host));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  check_all(hosts);
  return hosts;
}

std::vector<Host> read_host_file(const std::string& path, int most_per_host) {
  std::ifstream in(path);
  if (!in) throw ConfigError(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, workers, more;
    if (!(words >> name)) continue;
    words >> workers >> more;
    try {
      if (!more.empty())
        throw ConfigError(fmt::format("unexpected '{}': expected HOST [WORKERS]", shown(more)));
      hosts.push_back(checked(name, name, workers, most_per_host));
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}:{}: {}", path, number, error.what()));
    }
    if (hosts.size() > static_cast<std::size_t>(kMostHosts)) break;
  }
  try {
    check_all(hosts);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", path, error.what()));
  }
  return hosts;
}

int total_workers(const std::vector<Host>& hosts) {
  int total = 0;
  for (const Host& host : hosts) total += host.workers;
  return total;
}

bool names_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" ||
         (address.starts_with("127.") &&
          address.find_first_not_of("0123456789.") == std::string::npos);
}

bool is_this_host(const std::string& name) {
  std::array<char, kLongestName + 1> own{};
  if (::gethostname(own.data(), kLongestName) != 0) return names_loopback(name);
  const std::string full = own.data();
  return names_loopback(name) || name == full || name == full.substr(0, full.find('.'));
}

bool has_port(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return false;
  return address.find(':') == colon || address[colon - 1] == ']';
}

std::string join_host_port(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

}  // namespace skein

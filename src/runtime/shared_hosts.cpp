#include "runtime/shared_hosts.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "fabric/local/joint_events.h"
#include "fabric/local/local_fabric.h"
#include "fabric/rows.h"
#include "runtime/courier.h"
#include "skein/error.h"

namespace skein {
namespace {

// A channel that nobody else comes to.
constexpr Channel kAsking = kMostChannels - 1;

// What a worker says of its host. Those with the same text can reach each other's memory.
struct Whereabouts {
  std::array<char, 96> host{};
  std::array<std::uint8_t, 16> random{};
  std::uint8_t wanted = 0;
};

// The running system, the network namespace in it (abstract sockets, by which workers of one host
// meet, do not pass from one to another) and the user.
std::string this_host() {
  std::string system;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> system;
  struct stat network {};
  if (system.empty() || ::stat("/proc/self/ns/net", &network) != 0) return "";
  return fmt::format("{} {} {}", system, network.st_ino, ::geteuid());
}

Whereabouts own_whereabouts(int rank, bool wanted) {
  Whereabouts own;
  own.wanted = wanted ? 1 : 0;
  std::string host = this_host();
  // Who cannot tell shares nothing.
  if (host.empty() || host.size() >= own.host.size()) host = fmt::format("rank {}", rank);
  std::copy(host.begin(), host.end(), own.host.begin());
  if (::getrandom(own.random.data(), own.random.size(), 0) !=
      static_cast<ssize_t>(own.random.size()))
    throw Error(fmt::format("getrandom: {}", std::strerror(errno)));
  return own;
}

std::vector<Whereabouts> ask_all(Fabric& whole, bool wanted, Duration patience) {
  const Whereabouts own = own_whereabouts(whole.rank(), wanted);
  Rows table(whole.size(), sizeof(own));
  table.put(whole.rank(), std::as_bytes(std::span(&own, 1)));
  const Merge merge = table.merge();
  Courier(whole.loop(), whole.events())
      .wait(whole.combine(kAsking, table.record(), merge, Limit::silence(patience)));
  std::vector<Whereabouts> all(static_cast<std::size_t>(whole.size()));
  for (int rank = 0; rank < whole.size(); ++rank)
    std::memcpy(&all[static_cast<std::size_t>(rank)], table.row(rank).value().data(), sizeof(own));
  return all;
}

void check_choice(const std::vector<Whereabouts>& all) {
  const auto other = std::ranges::find_if(
      all, [&](const Whereabouts& each) { return each.wanted != all.front().wanted; });
  if (other == all.end()) return;
  const auto words = [](const Whereabouts& each) { return each.wanted != 0 ? "auto" : "one"; };
  throw ConfigError(fmt::format("--levels {} on rank 0, {} on rank {}: expected the same on all",
                                words(all.front()), words(*other), other - all.begin()));
}

Hosts hosts_of(const std::vector<Whereabouts>& all) {
  std::vector<int> host_of;
  for (const Whereabouts& each : all) {
    const auto first = std::ranges::find(all, each.host, &Whereabouts::host);
    host_of.push_back(static_cast<int>(first - all.begin()));
  }
  return Hosts(std::move(host_of));
}

}  // namespace

std::unique_ptr<Fabric> with_shared_hosts(std::unique_ptr<Fabric> whole, bool wanted,
                                          Duration patience) {
  const auto all = ask_all(*whole, wanted, patience);
  check_choice(all);
  const Hosts hosts = hosts_of(all);
  if (!wanted || !hosts.shared() || hosts.count() == 1) return whole;
  const auto first = static_cast<std::size_t>(hosts.mates(whole->rank()).front());
  std::string run_id = "hosts-";
  for (const std::uint8_t byte : all[first].random) run_id += fmt::format("{:02x}", byte);
  return with_shared_hosts(std::move(whole), hosts, run_id, patience);
}

std::unique_ptr<Fabric> with_shared_hosts(std::unique_ptr<Fabric> whole, const Hosts& hosts,
                                          const std::string& run_id, Duration patience) {
  const std::vector<int> mates = hosts.mates(whole->rank());
  if (mates.size() == 1) return std::make_unique<LevelsFabric>(std::move(whole), hosts);
  LocalOptions options;
  options.run_id = run_id;
  options.rank = static_cast<int>(std::ranges::find(mates, whole->rank()) - mates.begin());
  options.size = static_cast<int>(mates.size());
  options.join_timeout = patience;
  options.names = mates;
  options.descriptor = true;
  auto inside = std::make_unique<LocalFabric>(whole->loop(), options);
  auto events = std::make_unique<JointEvents>(*inside, *whole);
  return std::make_unique<LevelsFabric>(std::move(whole), std::move(inside), hosts,
                                        std::move(events));
}

}  // namespace skein

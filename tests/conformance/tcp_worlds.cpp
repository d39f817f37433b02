// The tcp fabric on the loopback interface, one forked process per rank: encrypted, in clear, with
// ranks that share hosts, and the same on devices.
#include "conformance/forked.h"
#include "fabric/alone.h"
#include "fabric/tcp/tcp.h"
#include "runtime/shared_hosts.h"
#include "tcp_run.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

std::vector<Outcome> run_tcp(int size, const Body& body, bool encrypt) {
  const TcpRun run;
  return run_forked(size, body, [&](Loop& loop, int rank) -> std::unique_ptr<Fabric> {
    if (size == 1) return std::make_unique<AloneFabric>(loop);
    TcpOptions options = run.options(rank, size);
    options.encrypt = encrypt;
    if (!encrypt) options.streams = 3;  // whose frames overtake each other
    return make_tcp_fabric(loop, options);
  });
}

// Ranks 2k and 2k + 1 are taken to share a host, where there are others: what goes between the two
// goes through memory.
std::vector<Outcome> run_on_hosts(int size, const Body& body, const PrepareQueue& prepare) {
  const TcpRun run;
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) host_of.push_back(size > 2 ? rank / 2 : rank);
  const Hosts hosts(host_of);
  return run_forked(
      size, body,
      [&](Loop& loop, int rank) -> std::unique_ptr<Fabric> {
        if (size == 1) return std::make_unique<AloneFabric>(loop);
        const TcpOptions options = run.options(rank, size);
        return with_shared_hosts(make_tcp_fabric(loop, options), hosts,
                                 options.rendezvous + "-" + std::to_string(rank / 2),
                                 options.join_timeout);
      },
      prepare);
}

}  // namespace

std::vector<World> tcp_worlds() {
  if (!why_no_tcp().empty()) return {};
  return {{"tcp", [](int size, const Body& body) { return run_tcp(size, body, true); }, die},
          {"tcp_clear", [](int size, const Body& body) { return run_tcp(size, body, false); }, die},
          {"tcp_hosts",
           [](int size, const Body& body) { return run_on_hosts(size, body, nullptr); }, die},
          {"tcp_device",
           [](int size, const Body& body) { return run_on_hosts(size, body, as_it_is); }, die}};
}

}  // namespace skein::conformance

// The tcp fabric on the loopback interface, one forked process per rank: encrypted and in clear.
#include "conformance/forked.h"
#include "fabric/alone.h"
#include "fabric/tcp/tcp.h"
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
    return make_tcp_fabric(loop, options);
  });
}

}  // namespace

std::vector<World> tcp_worlds() {
  if (!why_no_tcp().empty()) return {};
  return {
      {"tcp", [](int size, const Body& body) { return run_tcp(size, body, true); }, die},
      {"tcp_clear", [](int size, const Body& body) { return run_tcp(size, body, false); }, die}};
}

}  // namespace skein::conformance

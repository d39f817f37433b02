// The local fabric, one forked process per rank: as it is, with emulated links, and on a device.
#include <unistd.h>

#include <atomic>

#include "conformance/forked.h"
#include "fabric/local/local_fabric.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

std::vector<Outcome> run_local(int size, const Body& body, const LinkEmulation& link,
                               const PrepareQueue& prepare = nullptr) {
  static std::atomic<int> runs{0};
  const std::string run_id =
      "conformance-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  const auto make = [&](Loop& loop, int rank) {
    return std::make_unique<LocalFabric>(loop, LocalOptions{run_id, rank, size, 120s, link});
  };
  return run_forked(size, body, make, prepare);
}

}  // namespace

std::vector<Outcome> run_on_device(int size, const Body& body, const PrepareQueue& prepare) {
  return run_local(size, body, {}, prepare);
}

std::vector<World> local_worlds() {
  const LinkEmulation link{1e9, 50us};
  return {{"local", [](int size, const Body& body) { return run_local(size, body, {}); }, die},
          {"local_link", [link](int size, const Body& body) { return run_local(size, body, link); },
           die},
          {"device", [](int size, const Body& body) { return run_on_device(size, body); }, die}};
}

}  // namespace skein::conformance

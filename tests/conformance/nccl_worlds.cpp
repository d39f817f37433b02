// The nccl fabric over the local one, with a stand-in for NCCL, on toy devices.
#include "conformance/nccl_worlds.h"

#include <unistd.h>

#include <atomic>

#include "fabric/alone.h"
#include "fabric/local/local_fabric.h"
#include "fabric/nccl/nccl_fabric.h"

namespace skein::conformance {

using namespace std::chrono_literals;

std::vector<Outcome> run_on_nccl(int size, const Body& body, const PrepareQueue& prepare) {
  static std::atomic<int> runs{0};
  const std::string run_id = "nccl-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  toy::make_nccl_hub();
  return run_forked(
      size, body,
      [&](Loop& loop, int rank) -> std::unique_ptr<Fabric> {
        if (size == 1) return std::make_unique<AloneFabric>(loop);
        return std::make_unique<NcclFabric>(
            std::make_unique<LocalFabric>(loop, LocalOptions{run_id, rank, size, 120s, {}}),
            toy::toy_nccl(), true);
      },
      prepare);
}

std::vector<World> nccl_worlds() {
  return {{"nccl", [](int size, const Body& body) { return run_on_nccl(size, body); }, die}};
}

}  // namespace skein::conformance

// All worlds whose ranks one process can start.
#include "conformance/harness.h"

namespace skein::conformance {

std::vector<World> worlds() {
  std::vector<World> all = local_worlds();
  for (World& world : tcp_worlds()) all.push_back(std::move(world));
  for (World& world : sim_worlds()) all.push_back(std::move(world));
  return all;
}

}  // namespace skein::conformance

// What workers of one host may take together.
#include <gtest/gtest.h>

#include <string>

#include "conformance/harness.h"
#include "core/host_memory.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

World local_world() {
  for (const World& world : worlds())
    if (world.name == "local") return world;
  throw Error("no local fabric");
}

// Each fits by itself; nothing is ever touched.
TEST(Room, WorkersThatDoNotFitTogetherAreToldBeforeTheyTouchTheirMemory) {
  const auto available = available_memory();
  ASSERT_TRUE(available);
  const std::size_t count = *available / sizeof(float) * 6 / 10;
  expect_ok(local_world(), 2, [count](Fabric& fabric) -> Task<> {
    const auto refused = fabric.allocate(1);
    std::unique_ptr<Memory> large;
    try {
      large = fabric.allocate(count);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.find("needs") == std::string::npos || text.find("has") == std::string::npos)
        throw Error("says too little: " + text);
      refused->span().host()[0] = 1;
    }
    co_await fabric.all_reduce(1, refused->span(), fabric.loop().now() + 120s);
    if (refused->span().host()[0] == 0) throw Error("both were given what only one can have");
    // What was refused is no longer counted: when the other has given back, there is room again.
    large.reset();
    co_await fabric.barrier(2, fabric.loop().now() + 120s);
    if (fabric.rank() == 0) large = fabric.allocate(count);
    co_await fabric.barrier(2, fabric.loop().now() + 120s);
  });
}

}  // namespace
}  // namespace skein::conformance

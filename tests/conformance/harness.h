// Runs the same test body on every rank of every fabric.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "fabric/fabric.h"
#include "toy/toy_device.h"

namespace skein::conformance {

using toy::floats_of;  // for a test's own look at memory, wherever it is

// For state beside a model's planes.
inline Allocate allocator(Fabric& fabric) {
  if (!fabric.loop().queue()) return allocate_on_heap;
  return [&fabric](std::size_t count) { return fabric.allocate(count); };
}

// How many workers of a host sum by themselves first, which shows in the parts that ranks hold; 1
// where there is one level.
inline int workers_of_a_host(const Fabric& fabric) {
  if (fabric.traits().ring_order || fabric.traits().own_order) return 1;
  const std::size_t many = 1 << 20;
  const auto hosts = static_cast<int>(fabric.part(many, 1).offset / fabric.part(many, 0).count);
  return fabric.size() / hosts;
}

// How one rank ended.
struct Outcome {
  bool ok = false;
  std::string error;  // what() of what the body threw
  bool io_error = false;
  int peer = -1;   // IoError's peer
  int signal = 0;  // killed by
};

// A rank's part in a test: runs on its own loop. EXPECT_… inside it count.
using Body = std::function<Task<>(Fabric&)>;

// A way to make a fabric of N ranks and run a body on each.
struct World {
  std::string name;
  std::function<std::vector<Outcome>(int size, const Body& body)> run;
  // Ends the calling rank as kill -9 would; outcome: SIGKILL. Null: all would end with it.
  std::function<Task<>(Fabric&)> die;
};

inline constexpr const char* kAllDie = "the launcher ends all ranks when one is killed";

std::vector<World> worlds();  // all of them; in a program that mpirun starts, that of MPI
std::vector<World> local_worlds();
std::vector<World> tcp_worlds();  // none where the build has no tcp fabric
std::vector<World> sim_worlds();
std::vector<World> nccl_worlds();             // not among all: at most 4 ranks
World sim_world(const std::string& network);  // as sim::parse_network() reads it

// Keeps gtest from printing a World as bytes.
inline void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

// Runs `body` on all ranks and expects all to end well, but for `dead`, which is killed.
inline void expect_ok(const World& world, int size, const Body& body, int dead = -1) {
  const auto outcomes = world.run(size, body);
  for (int r = 0; r < size; ++r) {
    const Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
    if (r == dead)
      EXPECT_EQ(outcome.signal, SIGKILL);
    else
      EXPECT_TRUE(outcome.ok) << "rank " << r << ": " << outcome.error;
  }
}

// "local_4", "sim_2_dear".
inline std::string name_of(const testing::TestParamInfo<std::tuple<World, int>>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param));
}
inline std::string name_of_three(
    const testing::TestParamInfo<std::tuple<World, int, std::string>>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(std::get<1>(info.param)) + "_" +
         std::get<2>(info.param);
}

}  // namespace skein::conformance

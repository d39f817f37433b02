// Runs the same test body on every rank of every fabric.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace skein::conformance {

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
  std::function<Task<>(Fabric&)> die;  // ends the calling rank as kill -9 would; outcome: SIGKILL
};

std::vector<World> worlds();  // all of them
std::vector<World> sim_worlds();

// Keeps gtest from printing a World as bytes.
inline void PrintTo(const World& world, std::ostream* out) { *out << world.name; }

}  // namespace skein::conformance

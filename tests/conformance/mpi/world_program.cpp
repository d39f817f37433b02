// A program of a user's under mpirun: it joins twice, its ranks end at different times, and MPI
// ends with it. Exit code 0: all was well.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "skein/world.h"

int main(int argc, char** argv) try {
  using namespace std::chrono_literals;
  for (const int last_to_leave : {0, 1}) {
    skein::World world = skein::World::join({.fabric = "mpi", .patience = 120s});
    if (world.fabric() != "mpi" || world.size() < 2) throw skein::Error("not over MPI");
    if (world.sum({1.0}).front() != world.size()) throw skein::Error("a wrong sum");
    if (world.rank() == last_to_leave) std::this_thread::sleep_for(500ms);
    if (argc > 1 && std::strcmp(argv[1], "fail") == 0 && world.rank() == 1) {
      world.fail("a reason of its own");
      throw skein::Error("a reason of its own");
    }
    if (argc > 1) world.barrier();
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}

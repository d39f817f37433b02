// A worker that says where it is in its run, as any launcher started it, and joins the others.
//
//   placed FABRIC
//
// prints "LAUNCHER rank R of N, local L of M, sum S", S being the sum of all ranks and one more
// each; "alone" where nobody started it.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "launch/environment.h"
#include "skein/world.h"

int main(int count, char** words) {
  try {
    const auto placement = skein::detect(skein::process_environment);
    skein::World world = skein::World::join({.fabric = count > 1 ? words[1] : "local"});
    const double sum = world.sum({static_cast<double>(world.rank() + 1)}).front();
    world.barrier();
    // One write each: launchers pass on what comes, as it comes.
    const std::string line = placement
                                 ? fmt::format("{} rank {} of {}, local {} of {}, sum {}\n",
                                               placement->launcher, world.rank(), world.size(),
                                               placement->local_rank, placement->local_size, sum)
                                 : fmt::format("alone, sum {}\n", sum);
    std::fputs(line.c_str(), stdout);
    return 0;
  } catch (const std::exception& error) {
    std::fputs((std::string("placed: ") + error.what() + "\n").c_str(), stderr);
    return 1;
  }
}

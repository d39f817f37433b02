// Workers that are forked processes of one world.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "runtime/world_impl.h"
#include "skein/world.h"

namespace skein::test {

// Runs `body` as every rank of a run of `size` processes; each must return without a failure,
// but for `dies`, which must kill itself.
inline void on_workers(int size, const std::function<void(World&)>& body,
                       std::chrono::milliseconds patience = std::chrono::seconds(120),
                       int dies = -1) {
  static int runs = 0;
  const std::string run_id =
      "world-test-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SKEIN_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("SKEIN_SIZE", std::to_string(size).c_str(), 1);
      ::setenv("SKEIN_RUN", run_id.c_str(), 1);
      int code = 1;
      try {
        World world = World::join({.patience = patience});
        body(world);
        code = testing::Test::HasFailure() ? 1 : 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (rank == dies)
      EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank;
  }
}

// With and without tolerance of losses, which sums in another way.
inline void in_both_ways(int size, const std::function<void(World&)>& body) {
  for (const bool tolerant : {false, true})
    on_workers(size, [&](World& world) {
      if (tolerant) world.impl().tolerate_losses();
      body(world);
      world.barrier();
    });
}

}  // namespace skein::test

// Workers for a test: forked processes that join one world.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "skein/torch.h"

namespace skein::test {

inline constexpr std::chrono::seconds kPatience{120};

// Runs `body` as every rank of a run of `size` processes and returns how each ended, as waitpid()
// says. One whose body throws, or has a failure, ends with 1.
inline std::vector<int> statuses_of_workers(int size, const std::function<void(World)>& body,
                                            std::chrono::milliseconds patience = kPatience) {
  static int runs = 0;
  const std::string run_id =
      "torch-test-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("SKEIN_RANK", std::to_string(rank).c_str(), 1);
      ::setenv("SKEIN_SIZE", std::to_string(size).c_str(), 1);
      ::setenv("SKEIN_RUN", run_id.c_str(), 1);
      ::alarm(static_cast<unsigned>(10 * kPatience.count()));
      int code = 1;
      try {
        torch::set_num_threads(1);
        body(World::join({.patience = patience}));
        code = testing::Test::HasFailure() ? 1 : 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      std::fflush(nullptr);
      ::_exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) ::waitpid(child, &statuses.emplace_back(), 0);
  return statuses;
}

// Each must return without a failure, and none may outlive the patience of the others by much.
inline void as_workers(int size, const std::function<void(World)>& body) {
  const std::vector<int> statuses = statuses_of_workers(size, body);
  for (int rank = 0; rank < size; ++rank) {
    const int status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " ended with status " << status;
  }
}

// The same for bodies to whose end all workers come together.
inline void on_workers(int size, const std::function<void(World&)>& body) {
  as_workers(size, [&](World world) {
    body(world);
    world.barrier();
  });
}

// All parameters of a module, one after the other.
inline torch::Tensor flat_parameters(const torch::nn::Module& module) {
  std::vector<torch::Tensor> flat;
  for (const auto& each : module.parameters()) flat.push_back(each.detach().reshape({-1}));
  return torch::cat(flat).clone();
}

// Whether all workers hold the same bits.
inline bool same_on_all(World& world, const torch::Tensor& values) {
  std::vector<double> bits(static_cast<std::size_t>(2 * world.size()));
  double weighed = 0, plain = 0;
  const torch::Tensor exact = values.contiguous().to(torch::kFloat32);
  for (std::int64_t i = 0; i < exact.numel(); ++i) {
    std::uint32_t word = 0;
    std::memcpy(&word, exact.data_ptr<float>() + i, sizeof(word));
    plain += word % 65521;
    weighed = std::fmod(weighed * 31 + static_cast<double>(word % 65521), 16777213);
  }
  bits[static_cast<std::size_t>(2 * world.rank())] = std::fmod(plain, 16777213);
  bits[static_cast<std::size_t>(2 * world.rank() + 1)] = weighed;
  const auto all = world.sum(bits);
  for (std::size_t i = 2; i < all.size(); ++i)
    if (all[i] != all[i - 2]) return false;
  return true;
}

}  // namespace skein::test

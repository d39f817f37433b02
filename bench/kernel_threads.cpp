// The kernels that large models spend their time in, on several threads beside one, in turns:
//   bench_kernel_threads [THREADS] [MB of a vector…]
// Without arguments: the cores of this process, and 64, 256 and 1024 MB.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#include "core/arena.h"
#include "kernels/kernels.h"
#include "kernels/threads.h"
#include "kernels/update.h"

namespace {

using namespace skein;
using Vectors = std::vector<Span>;

struct Case {
  const char* name;
  int moves;  // vectors read plus vectors written
  std::function<void(const Vectors&)> run;
};

std::vector<Case> cases() {
  constexpr float kSmall = 1e-6F;
  const SgdFactors sgd{.learning_rate = kSmall, .momentum = 1};
  const AdamwFactors adamw{.beta1 = 1,
                           .one_minus_beta1 = 0,
                           .beta2 = 1,
                           .one_minus_beta2 = 0,
                           .epsilon = kSmall,
                           .step_size = kSmall};
  return {
      {"adamw_update", 8, [=](const Vectors& v) { adamw_update(v[0], v[1], v[2], v[3], adamw); }},
      {"sgd_update, momentum", 6, [=](const Vectors& v) { sgd_update(v[0], v[1], v[2], sgd); }},
      {"sum of 2", 3,
       [](const Vectors& v) {
         const std::vector<const float*> sources{v[1].data, v[2].data};
         sum(v[0], sources);
       }},
      {"axpy", 3, [](const Vectors& v) { axpy(v[0], kSmall, v[1]); }},
  };
}

double seconds(const Case& item, const Vectors& vectors) {
  const auto start = std::chrono::steady_clock::now();
  item.run(vectors);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void compare(std::size_t megabytes, int threads) {
  std::vector<std::unique_ptr<Memory>> memory;
  Vectors vectors;
  for (int i = 0; i < 4; ++i) {
    memory.push_back(allocate_on_heap(megabytes * 1000 * 1000 / sizeof(float)));
    vectors.push_back(memory.back()->span());
    fill(vectors.back(), 1);
  }
  for (const Case& item : cases()) {
    double one = std::numeric_limits<double>::infinity(), several = one;
    for (int round = 0; round < 7; ++round) {
      set_kernel_threads(1);
      one = std::min(one, seconds(item, vectors));
      set_kernel_threads(threads);
      several = std::min(several, seconds(item, vectors));
    }
    const double bytes = item.moves * static_cast<double>(vectors[0].bytes());
    fmt::print("{:<22}{:>8}{:>14.1f}{:>14.1f}{:>8.2f}\n", item.name, megabytes, bytes / one / 1e9,
               bytes / several / 1e9, one / several);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : share_of_cores(1);
  std::vector<std::size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoul(argv[i], nullptr, 10));
  if (sizes.empty()) sizes = {64, 256, 1024};
  if (threads < 1 || std::count(sizes.begin(), sizes.end(), 0u) > 0) {
    fmt::print(stderr, "bench_kernel_threads [THREADS] [MB…]: expected numbers above 0\n");
    return 2;
  }
  fmt::print("{:<22}{:>8}{:>14}{:>14}{:>8}\n", "kernel", "MB each", "1 thread GB/s",
             fmt::format("{} threads", threads), "ratio");
  for (const std::size_t megabytes : sizes) compare(megabytes, threads);
}

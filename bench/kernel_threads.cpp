// The kernels that large models spend their time in, on several threads beside one, in turns:
//   bench_kernel_threads [THREADS] [MB of a vector…]
// Without arguments: the cores of this process, and 64, 256 and 1024 MB.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/arena.h"
#include "kernels/kernels.h"
#include "kernels/measure.h"
#include "kernels/threads.h"

namespace {

using namespace skein;
// Those that take a large model's step.
bool is_of_a_step(const KernelCase& item) {
  const std::set<std::string> names{"adamw_update", "sgd_update, momentum", "sum of 2", "axpy"};
  return names.contains(item.name);
}

double seconds(const KernelCase& item, const KernelVectors& vectors) {
  const auto start = std::chrono::steady_clock::now();
  item.run(vectors);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void compare(std::size_t megabytes, int threads) {
  std::array<std::unique_ptr<Memory>, 4> memory;  // what those cases use
  KernelVectors vectors;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i] = allocate_on_heap(megabytes * 1000 * 1000 / sizeof(float));
    vectors[i] = memory[i]->span();
    fill(vectors[i], 1);
  }
  for (const KernelCase& item : kernel_cases()) {
    if (!is_of_a_step(item)) continue;
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

// How fast the kernels are on this machine or a device of it, beside memcpy: the limit of anything
// that moves memory.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "core/queue.h"

namespace skein {

// A kernel on six vectors of equal length, whose values may be run on however often: they stay what
// they are or grow slowly, since overflow and subnormal numbers would be timed otherwise.
using KernelVectors = std::array<Span, 6>;
struct KernelCase {
  const char* name;
  int moves;  // vectors read plus vectors written
  std::function<void(const KernelVectors&)> run;
};
std::vector<KernelCase> kernel_cases();

struct KernelRate {
  std::string kernel;
  std::size_t bytes = 0;               // of each vector
  double bytes_per_second = 0;         // read and written, what the operation must move
  double memcpy_bytes_per_second = 0;  // likewise (so twice the bytes copied), vectors as long

  double ratio() const { return bytes_per_second / memcpy_bytes_per_second; }
};

// Runs each kernel on one thread on vectors of `bytes` each (at least one float) and gives its best
// rate; memcpy runs in turns with it, so that both see the same machine. Takes a few seconds and
// the memory of six vectors. With a queue the vectors are on its device, and copies there take the
// place of memcpy.
std::vector<KernelRate> measure_kernels(std::size_t bytes, Queue* queue = nullptr);

}  // namespace skein

// How fast the kernels are on this machine, beside memcpy: the limit of anything that moves memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace skein {

struct KernelRate {
  std::string kernel;
  std::size_t bytes = 0;               // of each vector
  double bytes_per_second = 0;         // read and written, what the operation must move
  double memcpy_bytes_per_second = 0;  // likewise (so twice the bytes copied), vectors as long

  double ratio() const { return bytes_per_second / memcpy_bytes_per_second; }
};

// Runs each kernel on one thread on vectors of `bytes` each (at least one float) and gives its best
// rate; memcpy runs in turns with it, so that both see the same machine. Takes a few seconds and
// the memory of six vectors.
std::vector<KernelRate> measure_kernels(std::size_t bytes);

}  // namespace skein

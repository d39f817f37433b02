// What this machine offers to a run.
#pragma once

#include <cstdint>
#include <string>

namespace skein {

struct HostFacts {
  int cores = 0;                     // that this process may use
  std::int64_t memory_bytes = 0;     // of the machine, or of the container if that is less
  std::int64_t available_bytes = 0;  // that new programs can have without swapping; 0: unknown
  std::string huge_pages;            // "always", "madvise", "never" or "unknown"
  bool memfd = false;
  bool futex = false;
  bool pidfd = false;
  std::string blas_path;        // the library that has sgemm, or empty when torch contains its own
  std::string blas;             // its name, from blas_name()
  std::string torch_path;       // libtorch_cpu.so as it was loaded; empty: linked statically
  std::string filesystem_path;  // the library that this program's std::filesystem comes from
};

HostFacts inspect_host();

// Whose library this is, by its path: "OpenBLAS", "MKL", "BLIS", "ATLAS", "reference BLAS" (many
// times slower than the rest) or "unknown"; for an empty path "built into torch".
std::string blas_name(const std::string& path);

}  // namespace skein

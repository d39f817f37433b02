// Other libraries' collectives, to be timed beside Skein's. What was not there when this was built
// has a no_X.cpp in place of its X.cpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace skein::bench {

// Sums vectors over all ranks, each in its own way. Blocks until its part is done.
class Rival {
 public:
  virtual ~Rival() = default;
  virtual std::string name() const = 0;
  // To be called once before the others, by all ranks together.
  virtual void prepare(float* data, std::size_t count) = 0;
  virtual void all_reduce() = 0;
  virtual void reduce_scatter_and_all_gather() = 0;
};

// Null when this program was built without it. `folder`: where the ranks of this run, and no other,
// may leave files for each other.
std::unique_ptr<Rival> make_gloo(int rank, int size, const std::string& folder);
std::unique_ptr<Rival> make_mpi();

// The command that starts a program as the ranks of an MPI run, or empty.
std::string mpi_launcher();

}  // namespace skein::bench

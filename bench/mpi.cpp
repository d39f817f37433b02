// MPI as the system has it, with its own choice of transport: shared memory between ranks of one
// host.
#include <mpi.h>

#include <cstring>

#include "rival.h"
#include "skein/error.h"

namespace skein::bench {
namespace {

class Mpi final : public Rival {
 public:
  // The mpi fabric calls MPI from a thread of its own meanwhile.
  Mpi() {
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (level < MPI_THREAD_MULTIPLE) throw Error("this MPI takes calls of one thread at a time");
  }
  ~Mpi() override { MPI_Finalize(); }

  std::string name() const override { return "raw MPI"; }

  void prepare(float* data, std::size_t count) override {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    data_ = data;
    count_ = static_cast<int>(count);
    share_ = count_ / size;
  }

  void all_reduce() override {
    MPI_Allreduce(MPI_IN_PLACE, data_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  // In place the sum comes to the front of the buffer; it has to go to the rank's own share.
  void reduce_scatter_and_all_gather() override {
    float* own = data_ + static_cast<std::ptrdiff_t>(rank_) * share_;
    MPI_Reduce_scatter_block(MPI_IN_PLACE, data_, share_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (own != data_) std::memcpy(own, data_, static_cast<std::size_t>(share_) * sizeof(float));
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data_, share_, MPI_FLOAT, MPI_COMM_WORLD);
  }

 private:
  float* data_ = nullptr;
  int count_ = 0, share_ = 0, rank_ = 0;
};

}  // namespace

std::unique_ptr<Rival> make_mpi() { return std::make_unique<Mpi>(); }

std::string mpi_launcher() { return SKEIN_MPIEXEC; }

}  // namespace skein::bench

// Who has started the workers, and whether MPI agrees.
#include "fabric/mpi/make_mpi.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>

#include "fabric/mpi/mpi_fabric.h"
#include "fabric/mpi/session.h"
#include "skein/error.h"

namespace skein {
namespace {

enum class Family { open_mpi, mpich, other };

Family family() {
  const std::string library = mpi_library();
  if (library.starts_with("Open MPI")) return Family::open_mpi;
  for (const char* name : {"MPICH", "MVAPICH", "Intel"})
    if (library.find(name) != std::string::npos) return Family::mpich;
  return Family::other;
}

// Each MPI knows the workers that its own launcher has started. To another one's every worker is
// a world of one.
void check_launcher(const Placement& placement) {
  const Family built = family();
  const std::string own = built == Family::open_mpi ? "Open MPI's mpirun" : "its own mpirun";
  const auto refuse = [&](const std::string& who, const std::string& instead) {
    throw ConfigError(
        fmt::format("the mpi fabric of this build has {}, but {} has started the {} workers, and "
                    "each would be alone; expected {}",
                    mpi_library(), who, placement.size, instead));
  };
  if (placement.launcher == "skein" || placement.launcher == "torchrun")
    refuse(placement.launcher, fmt::format("{} -n {} PROGRAM", own, placement.size));
  if (placement.launcher == "mpich" && built == Family::open_mpi)
    refuse("the mpirun of MPICH (Hydra)",
           own + ", or a build with MPICH (cmake -DMPI_CXX_COMPILER=mpicxx.mpich)");
  if (placement.launcher == "openmpi" && built == Family::mpich)
    refuse("the mpirun of Open MPI",
           own + ", or a build with Open MPI (cmake -DMPI_CXX_COMPILER=mpicxx.openmpi)");
}

void check_world(const Placement& placement) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != placement.size)
    throw ConfigError(fmt::format(
        "the mpi fabric of this build has {}, which knows of {} worker{}, but {} has started {}; "
        "expected a launcher that it knows: its own mpirun, or srun --mpi=pmix where that is in "
        "both",
        mpi_library(), size, size == 1 ? "" : "s", placement.launcher, placement.size));
  if (rank != placement.rank)
    throw ConfigError(fmt::format("{} says that this is rank {}, and {} that it is rank {}",
                                  placement.launcher, placement.rank, mpi_library(), rank));
}

}  // namespace

std::string why_no_mpi() { return ""; }

// "Open MPI v4.1.4, package: …" and "MPICH Version:\t4.0.2\n…".
std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "an unknown MPI";
  std::string out(text.data(), static_cast<std::size_t>(length));
  out.resize(std::min(out.find_first_of(",\n"), out.size()));
  if (const std::size_t at = out.find(" Version:"); at != std::string::npos)
    out.erase(at, std::string(" Version:").size());
  std::replace(out.begin(), out.end(), '\t', ' ');
  return out;
}

std::unique_ptr<Fabric> make_mpi_fabric(Loop& loop, const MpiOptions& options) {
  check_launcher(options.placement);
  mpi::Session& session = mpi::Session::of_this_process();
  session.start(options.patience);
  check_world(options.placement);
  return std::make_unique<mpi::MpiFabric>(loop, session.communicator(options.patience),
                                          options.patience, options.longest_nap);
}

}  // namespace skein

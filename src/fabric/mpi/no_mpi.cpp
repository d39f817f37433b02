// In builds without MPI, in place of the rest of this folder.
#include "fabric/mpi/make_mpi.h"
#include "skein/error.h"

namespace skein {

std::string why_no_mpi() {
  return "it was built without MPI: apt install libopenmpi-dev openmpi-bin, configure again";
}

std::string mpi_library() { return ""; }

std::unique_ptr<Fabric> make_mpi_fabric(Loop&, const MpiOptions&) {
  throw ConfigError("the mpi fabric is not in this build: " + why_no_mpi());
}

}  // namespace skein

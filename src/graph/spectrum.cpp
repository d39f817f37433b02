#include "graph/spectrum.h"

#include "core/check.h"

namespace skein {

Spectrum find_spectrum(int size, const std::vector<FiringEdge>& edges, Solver solver) {
  SKEIN_CHECK(size >= 2, "the spectrum of {} vertices", size);
  const bool dense = solver == Solver::dense || (solver == Solver::automatic && size <= kMostDense);
  return dense ? dense_spectrum(size, edges) : sparse_spectrum(size, edges);
}

}  // namespace skein

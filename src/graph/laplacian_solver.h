// Solves equations with the sparse Laplacian Λ of a connected graph.
#pragma once

#include <memory>

#include "graph/spectrum.h"

namespace skein {

class LaplacianSolver {
 public:
  virtual ~LaplacianSolver() = default;

  // Λ⁺ v, but for an added constant, of a v whose elements sum to 0.
  virtual std::vector<double> solve(const std::vector<double>& v) const = 0;

  // max over edges of (e_a − e_b)ᵀ Λ⁺ (e_a − e_b). The eigenvalue, that of Spectrum, says how far
  // one must go for a relative error below 1e-6.
  virtual double largest_resistance(double second_eigenvalue) const = 0;
};

// Factors Λ; nothing when the factor would be so full that iterating is faster, as it is for graphs
// in which every worker is a few steps from every other.
std::unique_ptr<LaplacianSolver> factorise(int size, const std::vector<FiringEdge>& edges);

// By conjugate gradients: the fewer steps, the faster the graph mixes.
std::unique_ptr<LaplacianSolver> iterate(int size, const std::vector<FiringEdge>& edges);

}  // namespace skein

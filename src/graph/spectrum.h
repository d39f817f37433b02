// What gossip needs to know of a weighted graph's Laplacian Λ = Σ λ_ab (e_a − e_b)(e_a − e_b)ᵀ.
#pragma once

#include <cstdint>
#include <vector>

namespace skein {

struct FiringEdge {
  int a = 0;
  int b = 0;
  double rate = 0;  // λ_ab
};

struct Spectrum {
  double second_eigenvalue = 0;   // the smallest is 0
  double largest_resistance = 0;  // max over edges of (e_a − e_b)ᵀ Λ⁺ (e_a − e_b)
};

// Automatic is dense up to kMostDense workers.
enum class Solver : std::uint8_t { automatic, dense, sparse };
inline constexpr int kMostDense = 2000;

// Of a connected graph with at least two vertices and without double edges. Relative errors are
// below 1e-6.
Spectrum find_spectrum(int size, const std::vector<FiringEdge>& edges,
                       Solver solver = Solver::automatic);

Spectrum dense_spectrum(int size, const std::vector<FiringEdge>& edges);
Spectrum sparse_spectrum(int size, const std::vector<FiringEdge>& edges);

}  // namespace skein

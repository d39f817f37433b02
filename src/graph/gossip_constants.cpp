#include "graph/gossip_constants.h"

#include <cmath>

#include "core/check.h"

namespace skein {
namespace {

// The sums of the solvers depend on the processor's caches in their last digits.
double rounded(double value) {
  constexpr int kBits = 32;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, kBits)), exponent - kBits);
}

std::vector<FiringEdge> firing_edges(const Topology& topology) {
  std::vector<FiringEdge> edges;
  edges.reserve(topology.edges().size());
  for (const auto& [a, b] : topology.edges())
    edges.push_back({a, b, (1.0 / topology.degree(a) + 1.0 / topology.degree(b)) / 2});
  return edges;
}

}  // namespace

GossipConstants gossip_constants(const Topology& topology, double rate, Solver solver) {
  SKEIN_CHECK(std::isfinite(rate) && rate > 0, "a rate of {}", rate);
  GossipConstants constants;
  if (topology.size() == 1) return constants;
  // Λ is proportional to the rate.
  const Spectrum spectrum = find_spectrum(topology.size(), firing_edges(topology), solver);
  constants.chi1 = rounded(1 / spectrum.second_eigenvalue) / rate;
  constants.chi2 = rounded(spectrum.largest_resistance / 2) / rate;
  constants.eta = 1 / (2 * std::sqrt(constants.chi1 * constants.chi2));
  constants.alpha_tilde = std::sqrt(constants.chi1 / constants.chi2) / 2;
  return constants;
}

}  // namespace skein

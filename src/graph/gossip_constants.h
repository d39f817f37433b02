// What a graph makes of gossip: how fast averaging spreads, and the momentum that speeds it up.
#pragma once

#include "graph/spectrum.h"
#include "graph/topology.h"

namespace skein {

// Of A²CiD². Time is in gradients per worker.
struct GossipConstants {
  double chi1 = 0;           // 1 / the second smallest eigenvalue of Λ
  double chi2 = 0;           // half the largest effective resistance of an edge; at most chi1
  double eta = 0;            // rate at which x and x̃ mix
  double alpha = 0.5;        // of x in an averaging
  double alpha_tilde = 0.5;  // of x̃

  // The bound on the squared distance between the workers falls by a factor of e in this time.
  double time_with_momentum() const { return eta > 0 ? 1 / eta : 0; }
  double time_without() const { return 2 * chi1; }
};

// Every worker proposes rate / 2 averagings per gradient of its own, each to a neighbour drawn
// uniformly: edge (i, j) fires rate / 2 · (1 / deg i + 1 / deg j) times, which is its weight in Λ.
//
// chi1 and chi2 are right to 1e-6, and rounded so that workers on different processors find the
// same. One worker averages with nobody: its chi1, chi2 and eta are 0. Takes seconds for 2,000
// workers and for thousands; a minute or so for thousands with thousands of neighbours each.
// Requires a positive, finite rate.
GossipConstants gossip_constants(const Topology& topology, double rate,
                                 Solver solver = Solver::automatic);

}  // namespace skein

// The edges of the graphs that have names. An edge may come twice, in either direction, where a
// graph is so small that two ways around it meet: Topology counts it once.
#pragma once

#include <vector>

#include "core/rng.h"
#include "graph/topology.h"

namespace skein::graphs {

std::vector<Edge> ring(int workers);
std::vector<Edge> complete(int workers);
std::vector<Edge> star(int workers);
std::vector<Edge> exponential(int workers);

// Row by row, both directions closed. Requires that `rows` divides `workers`.
std::vector<Edge> torus(int rows, int workers);

// The largest divisor of `workers` that is not above its square root.
int squarest_rows(int workers);

// A simple connected graph. Requires degree < workers, an even degree · workers, and a degree of at
// least 2 where there are more than 2 workers.
std::vector<Edge> random_regular(int degree, int workers, Rng rng);

}  // namespace skein::graphs

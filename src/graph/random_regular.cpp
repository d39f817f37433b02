// Random graphs in which every worker has the same number of neighbours, by the pairing model:
// every worker has `degree` loose ends, and loose ends are tied at random. Ties that would make a
// loop or a double edge are left for another round, which is nearly uniform over all such graphs
// (Steger and Wormald); starting anew at each of them would take exp(degree² / 4) attempts.
#include <algorithm>
#include <optional>
#include <set>

#include "core/check.h"
#include "graph/graphs.h"

namespace skein::graphs {
namespace {

using EdgeSet = std::set<Edge>;

Edge ascending(int a, int b) { return a < b ? Edge{a, b} : Edge{b, a}; }

bool can_tie(const EdgeSet& edges, int a, int b) {
  return a != b && !edges.contains(ascending(a, b));
}

bool any_can_be_tied(const EdgeSet& edges, const std::vector<int>& ends) {
  for (std::size_t i = 0; i < ends.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (can_tie(edges, ends[i], ends[j])) return true;
  return false;
}

// One round: ties random pairs and returns the ends that are still loose.
std::vector<int> tie_some(EdgeSet& edges, const std::vector<int>& ends, Rng& rng) {
  const auto order = rng.permutation(static_cast<std::uint32_t>(ends.size()));
  std::vector<int> loose;
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) {
    const int a = ends[order[i]], b = ends[order[i + 1]];
    if (can_tie(edges, a, b))
      edges.insert(ascending(a, b));
    else
      loose.insert(loose.end(), {a, b});
  }
  return loose;
}

// Nothing when the last loose ends could not be tied.
std::optional<EdgeSet> attempt(int degree, int workers, Rng& rng) {
  std::vector<int> ends;
  for (int rank = 0; rank < workers; ++rank)
    ends.insert(ends.end(), static_cast<std::size_t>(degree), rank);
  EdgeSet edges;
  while (!ends.empty()) {
    const std::size_t before = ends.size();
    ends = tie_some(edges, ends, rng);
    if (ends.size() == before && !any_can_be_tied(edges, ends)) return std::nullopt;
  }
  return edges;
}

bool connected(const EdgeSet& edges, int workers) {
  std::vector<int> root(static_cast<std::size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) root[static_cast<std::size_t>(rank)] = rank;
  const auto find = [&](int rank) {
    while (root[static_cast<std::size_t>(rank)] != rank) {
      int& up = root[static_cast<std::size_t>(rank)];
      rank = up = root[static_cast<std::size_t>(up)];
    }
    return rank;
  };
  int parts = workers;
  for (const auto& [a, b] : edges) {
    const int x = find(a), y = find(b);
    if (x == y) continue;
    root[static_cast<std::size_t>(x)] = y;
    --parts;
  }
  return parts == 1;
}

std::vector<Edge> complement(const EdgeSet& edges, int workers) {
  std::vector<Edge> rest = complete(workers);
  std::erase_if(rest, [&](const Edge& edge) { return edges.contains(edge); });
  return rest;
}

}  // namespace

std::vector<Edge> random_regular(int degree, int workers, Rng rng) {
  // The least likely is a single ring, of all unions of rings: 1 in 400 with 100,000 workers.
  constexpr int kMostAttempts = 100'000;
  // Ties fail often in a nearly complete graph: draw what is missing there. With that many
  // neighbours it is always connected.
  const bool sparse = 2 * degree < workers;
  for (int i = 0; i < kMostAttempts; ++i) {
    const auto edges = attempt(sparse ? degree : workers - 1 - degree, workers, rng);
    if (!edges) continue;
    if (!sparse) return complement(*edges, workers);
    if (connected(*edges, workers)) return {edges->begin(), edges->end()};
  }
  SKEIN_CHECK(false, "no random graph of {} workers with {} neighbours each", workers, degree);
}

}  // namespace skein::graphs

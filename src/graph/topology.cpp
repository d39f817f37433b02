#include "graph/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/parse_number.h"
#include "graph/graphs.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr const char* kKinds =
    "ring, complete, exponential, torus, torus:ROWSxCOLUMNS, star, random-regular:DEGREE or the "
    "path of an edge-list file";

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw ConfigError(fmt::format("topology {}: {}", name, why));
}

void check_edge_count(const std::string& name, int workers, std::int64_t edges) {
  if (edges > kMostEdges)
    refuse(name, fmt::format("{} edges with {} workers; expected at most {}", edges, workers,
                             kMostEdges));
}

std::vector<Edge> read_torus(const std::string& name, const std::string& shape, int workers) {
  if (shape.empty()) return graphs::torus(graphs::squarest_rows(workers), workers);
  const std::size_t x = shape.find('x');
  int rows = 0, columns = 0;
  if (x == std::string::npos || !parse_number(shape.substr(0, x), rows) ||
      !parse_number(shape.substr(x + 1), columns) || rows < 1 || columns < 1)
    refuse(name, "expected rows and columns, such as torus:4x8");
  if (std::int64_t{rows} * columns != workers)
    refuse(name, fmt::format("{} places, {} workers; expected one each",
                             std::int64_t{rows} * columns, workers));
  return graphs::torus(rows, workers);
}

std::vector<Edge> read_random_regular(const std::string& name, const std::string& text, int workers,
                                      std::uint64_t seed) {
  int degree = 0;
  if (!parse_number(text, degree) || degree < 0)
    refuse(name, "expected the number of neighbours, such as random-regular:4");
  if (degree >= workers)
    refuse(name, fmt::format("{} workers have at most {} neighbours each", workers, workers - 1));
  if (degree < std::min(workers - 1, 2))
    refuse(name,
           fmt::format("{} workers cannot all be connected with {} each; expected at least {}",
                       workers, degree, std::min(workers - 1, 2)));
  if (std::int64_t{degree} * workers % 2 != 0)
    refuse(name, fmt::format("{} workers with {} neighbours each: one of the two must be even",
                             workers, degree));
  check_edge_count(name, workers, std::int64_t{degree} * workers / 2);
  return graphs::random_regular(degree, workers, Rng(seed));
}

std::vector<Edge> read_file(const std::string& path, int workers) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    refuse(path, fmt::format("there is no such graph or file; expected {}", kKinds));
  return read_edge_list(path, workers);
}

std::vector<Edge> read_graph(const std::string& text, int workers, std::uint64_t seed) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string shape = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (kind == "torus" && (colon == std::string::npos || !shape.empty()))
    return read_torus(text, shape, workers);
  if (kind == "random-regular") return read_random_regular(text, shape, workers, seed);
  if (text == "ring") return graphs::ring(workers);
  if (text == "exponential") return graphs::exponential(workers);
  if (text == "star") return graphs::star(workers);
  if (text != "complete") return read_file(text, workers);
  check_edge_count(text, workers, std::int64_t{workers} * (workers - 1) / 2);
  return graphs::complete(workers);
}

}  // namespace

Topology Topology::parse(const std::string& text, int workers, std::uint64_t seed) {
  SKEIN_CHECK(workers > 0, "a graph of {} workers", workers);
  return {text, workers, read_graph(text, workers, seed)};
}

Topology::Topology(std::string name, int workers, std::vector<Edge> edges)
    : name_(std::move(name)),
      edges_(std::move(edges)),
      first_(static_cast<std::size_t>(workers) + 1) {
  for (Edge& edge : edges_) {
    if (edge.a > edge.b) std::swap(edge.a, edge.b);
    SKEIN_CHECK(edge.a >= 0 && edge.a < edge.b && edge.b < workers, "{}: edge {}-{} of {} workers",
                name_, edge.a, edge.b, workers);
  }
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  for (const auto& [a, b] : edges_) {
    ++first_[static_cast<std::size_t>(a) + 1];
    ++first_[static_cast<std::size_t>(b) + 1];
  }
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  neighbours_.resize(2 * edges_.size());
  // Smaller neighbours of a rank come before larger ones: edges ascend, and (a, r) before (r, b).
  auto next = first_;
  for (const auto& [a, b] : edges_) {
    neighbours_[next[static_cast<std::size_t>(a)]++] = b;
    neighbours_[next[static_cast<std::size_t>(b)]++] = a;
  }
  check_connected();
}

std::span<const int> Topology::neighbours(int rank) const {
  SKEIN_CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  const auto r = static_cast<std::size_t>(rank);
  return {neighbours_.data() + first_[r], first_[r + 1] - first_[r]};
}

void Topology::check_connected() const {
  std::vector<bool> reached(static_cast<std::size_t>(size()));
  std::vector<int> waiting{0};
  reached[0] = true;
  while (!waiting.empty()) {
    const int rank = waiting.back();
    waiting.pop_back();
    for (const int other : neighbours(rank)) {
      if (reached[static_cast<std::size_t>(other)]) continue;
      reached[static_cast<std::size_t>(other)] = true;
      waiting.push_back(other);
    }
  }
  const auto lost = std::find(reached.begin(), reached.end(), false);
  if (lost != reached.end())
    refuse(name_, fmt::format("the graph is not connected: rank 0 cannot reach rank {}",
                              lost - reached.begin()));
}

}  // namespace skein

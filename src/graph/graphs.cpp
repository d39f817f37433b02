#include "graph/graphs.h"

namespace skein::graphs {
namespace {

void add(std::vector<Edge>& edges, int a, int b) {
  if (a != b) edges.push_back({a, b});
}

}  // namespace

std::vector<Edge> ring(int workers) { return torus(1, workers); }

std::vector<Edge> complete(int workers) {
  std::vector<Edge> edges;
  for (int a = 0; a < workers; ++a)
    for (int b = a + 1; b < workers; ++b) edges.push_back({a, b});
  return edges;
}

std::vector<Edge> star(int workers) {
  std::vector<Edge> edges;
  for (int leaf = 1; leaf < workers; ++leaf) edges.push_back({0, leaf});
  return edges;
}

std::vector<Edge> exponential(int workers) {
  std::vector<Edge> edges;
  for (std::int64_t hop = 1; hop < workers; hop *= 2)
    for (int rank = 0; rank < workers; ++rank)
      add(edges, rank, static_cast<int>((rank + hop) % workers));
  return edges;
}

std::vector<Edge> torus(int rows, int workers) {
  const int columns = workers / rows;
  std::vector<Edge> edges;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      const int here = row * columns + column;
      add(edges, here, row * columns + (column + 1) % columns);
      add(edges, here, (row + 1) % rows * columns + column);
    }
  return edges;
}

int squarest_rows(int workers) {
  int rows = 1;
  for (int divisor = 2; std::int64_t{divisor} * divisor <= workers; ++divisor)
    if (workers % divisor == 0) rows = divisor;
  return rows;
}

}  // namespace skein::graphs

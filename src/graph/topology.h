// Who averages with whom: the graph of a gossip strategy.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace skein {

// Two different ranks, the smaller one first.
struct Edge {
  int a = 0;
  int b = 0;

  auto operator<=>(const Edge&) const = default;  // NOLINT(modernize-use-nullptr): there is none
};

// A connected graph without loops or double edges on the ranks 0 … size() − 1. One worker has no
// edges. Immutable.
class Topology {
 public:
  // A graph by its description:
  //   ring, complete, star (around rank 0)
  //   exponential          r ± 2^k, each distinct neighbour once
  //   torus, torus:4x8     rows by columns, else as square as `workers` allows
  //   random-regular:D     D neighbours each, drawn by `seed`, which nothing else uses
  //   anything else        the path of an edge-list file: see read_edge_list()
  // ConfigError when that is impossible with so many workers, and when the graph is not connected:
  // then it names two ranks that cannot reach each other. Requires workers > 0.
  static Topology parse(const std::string& text, int workers, std::uint64_t seed);

  // The graph with these edges, in any order; an edge that comes twice counts once. Errors begin
  // with `name`.
  Topology(std::string name, int workers, std::vector<Edge> edges);

  const std::string& name() const { return name_; }
  int size() const { return static_cast<int>(first_.size()) - 1; }
  const std::vector<Edge>& edges() const { return edges_; }  // ascending
  std::span<const int> neighbours(int rank) const;           // ascending
  int degree(int rank) const { return static_cast<int>(neighbours(rank).size()); }

 private:
  void check_connected() const;

  std::string name_;
  std::vector<Edge> edges_;
  std::vector<std::size_t> first_;  // of each rank's neighbours, and the end
  std::vector<int> neighbours_;
};

// As many as a graph may have: a complete one of 5,792 workers.
inline constexpr std::int64_t kMostEdges = std::int64_t{1} << 24;

// A file with two ranks a line, separated by blanks; # begins a comment. An edge may come twice, in
// either direction. ConfigError, with file and line, for anything else.
std::vector<Edge> read_edge_list(const std::string& path, int workers);

// What read_edge_list() reads.
std::string print_edge_list(const Topology& topology);

}  // namespace skein

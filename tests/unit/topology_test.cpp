// Graphs by name and from files.
#include "graph/topology.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "graph/graphs.h"
#include "skein/error.h"

namespace skein {
namespace {

Topology graph(const std::string& text, int workers, std::uint64_t seed = 1) {
  return Topology::parse(text, workers, seed);
}

std::vector<int> neighbours(const std::string& text, int workers, int rank) {
  const Topology topology = graph(text, workers);
  const auto span = topology.neighbours(rank);
  return {span.begin(), span.end()};
}

std::size_t edges(const std::string& text, int workers) {
  return graph(text, workers).edges().size();
}

std::string refusal(const std::string& text, int workers) {
  try {
    graph(text, workers);
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

using Ranks = std::vector<int>;

TEST(Topology, Ring) {
  EXPECT_EQ(neighbours("ring", 5, 0), (Ranks{1, 4}));
  EXPECT_EQ(neighbours("ring", 5, 3), (Ranks{2, 4}));
  EXPECT_EQ(graph("ring", 4).edges(), (std::vector<Edge>{{0, 1}, {0, 3}, {1, 2}, {2, 3}}));
}

TEST(Topology, Complete) {
  EXPECT_EQ(neighbours("complete", 4, 2), (Ranks{0, 1, 3}));
  EXPECT_EQ(edges("complete", 64), 64u * 63 / 2);
}

TEST(Topology, StarIsAroundRank0) {
  EXPECT_EQ(neighbours("star", 4, 0), (Ranks{1, 2, 3}));
  EXPECT_EQ(neighbours("star", 4, 3), (Ranks{0}));
}

TEST(Topology, ExponentialHasEachDistinctNeighbourOnce) {
  EXPECT_EQ(neighbours("exponential", 16, 0), (Ranks{1, 2, 4, 8, 12, 14, 15}));
  EXPECT_EQ(neighbours("exponential", 16, 5), (Ranks{1, 3, 4, 6, 7, 9, 13}));
  EXPECT_EQ(neighbours("exponential", 6, 0), (Ranks{1, 2, 4, 5})) << "-2 and +4 are the same";
  EXPECT_EQ(neighbours("exponential", 12, 0), (Ranks{1, 2, 4, 8, 10, 11}));
}

TEST(Topology, TorusIsAsSquareAsItCanBe) {
  EXPECT_EQ(neighbours("torus", 12, 0), (Ranks{1, 3, 4, 8})) << "3 rows of 4";
  EXPECT_EQ(graph("torus", 12).edges(), graph("torus:3x4", 12).edges());
  EXPECT_EQ(neighbours("torus:4x8", 32, 9), (Ranks{1, 8, 10, 17}));
  EXPECT_EQ(graph("torus", 7).edges(), graph("ring", 7).edges()) << "a prime";
  EXPECT_EQ(neighbours("torus:2x4", 8, 0), (Ranks{1, 3, 4})) << "up and down are the same";
  EXPECT_EQ(edges("torus:2x2", 4), 4u);
  EXPECT_EQ(edges("torus", 64), 128u);
}

TEST(Topology, OfOneAndOfTwo) {
  for (const char* kind : {"ring", "complete", "exponential", "torus", "star"}) {
    EXPECT_EQ(graph(kind, 1).size(), 1) << kind;
    EXPECT_EQ(edges(kind, 1), 0u) << kind;
    EXPECT_TRUE(graph(kind, 1).neighbours(0).empty()) << kind;
    EXPECT_EQ(graph(kind, 2).edges(), (std::vector<Edge>{{0, 1}})) << kind;
  }
  EXPECT_EQ(edges("random-regular:0", 1), 0u);
  EXPECT_EQ(edges("random-regular:1", 2), 1u);
}

TEST(Topology, NeighboursAreMutualAndAscending) {
  for (const char* kind : {"ring", "complete", "exponential", "torus", "star", "random-regular:4"})
    for (const int workers : {5, 6, 9, 16, 30}) {
      const Topology topology = graph(kind, workers);
      std::set<Edge> both;
      for (int rank = 0; rank < workers; ++rank) {
        const auto others = topology.neighbours(rank);
        EXPECT_TRUE(std::is_sorted(others.begin(), others.end())) << kind << workers;
        for (const int other : others) both.insert({rank, other});
      }
      EXPECT_EQ(both.size(), 2 * topology.edges().size()) << kind << workers;
      for (const auto& [a, b] : topology.edges())
        EXPECT_TRUE(both.contains({a, b}) && both.contains({b, a})) << kind << workers;
    }
}

TEST(RandomRegular, EveryDegreeOfEverySeed) {
  for (const int workers : {3, 4, 6, 11, 24, 40})
    for (int degree = 2; degree < workers; ++degree) {
      if (degree * workers % 2 != 0) continue;
      const std::string kind = "random-regular:" + std::to_string(degree);
      for (std::uint64_t seed = 0; seed < 20; ++seed) {
        // Counted before Topology could have removed a double edge.
        const auto edges = graphs::random_regular(degree, workers, Rng(seed));
        EXPECT_EQ(edges.size(), static_cast<std::size_t>(degree * workers / 2)) << kind;
        const Topology topology(kind, workers, edges);  // throws unless connected
        for (int rank = 0; rank < workers; ++rank)
          ASSERT_EQ(topology.degree(rank), degree) << kind << " of " << workers << " seed " << seed;
      }
    }
}

TEST(RandomRegular, FollowsTheSeedAlone) {
  const auto edges = [](std::uint64_t seed) { return graph("random-regular:3", 32, seed).edges(); };
  EXPECT_EQ(edges(7), edges(7));
  std::set<std::vector<Edge>> distinct;
  for (std::uint64_t seed = 0; seed < 20; ++seed) distinct.insert(edges(seed));
  EXPECT_EQ(distinct.size(), 20u);
}

TEST(RandomRegular, EveryEdgeIsAboutAsLikely) {
  constexpr int kWorkers = 8, kDegree = 3, kDraws = 4000;
  std::map<Edge, int> seen;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed)
    for (const Edge& edge : graphs::random_regular(kDegree, kWorkers, Rng(seed))) ++seen[edge];
  EXPECT_EQ(seen.size(), 28u);
  const double expected = 1.0 * kDraws * kDegree / (kWorkers - 1);
  for (const auto& [edge, count] : seen)
    EXPECT_NEAR(count, expected, 6 * std::sqrt(expected)) << edge.a << "-" << edge.b;
}

TEST(Topology, RefusesWhatCannotBe) {
  const std::string ring = refusal("rign", 4);
  EXPECT_EQ(ring.rfind("topology rign: there is no such graph or file; expected ring, ", 0), 0u);
  EXPECT_EQ(refusal("ring:3", 4).rfind("topology ring:3: there is no such", 0), 0u);
  EXPECT_EQ(refusal("torus:4x", 4),
            "topology torus:4x: expected rows and columns, such as torus:4x8");
  EXPECT_EQ(refusal("torus:-2x-2", 4),
            "topology torus:-2x-2: expected rows and columns, such as torus:4x8");
  EXPECT_EQ(refusal("torus:3x4", 10),
            "topology torus:3x4: 12 places, 10 workers; expected one each");
  EXPECT_EQ(refusal("torus:65536x65536", 4),
            "topology torus:65536x65536: 4294967296 places, 4 workers; expected one each");
  EXPECT_EQ(refusal("random-regular", 4),
            "topology random-regular: expected the number of neighbours, such as random-regular:4");
  EXPECT_EQ(refusal("random-regular:4", 4),
            "topology random-regular:4: 4 workers have at most 3 neighbours each");
  EXPECT_EQ(refusal("random-regular:3", 5),
            "topology random-regular:3: 5 workers with 3 neighbours each: one of the two must be "
            "even");
  EXPECT_EQ(refusal("random-regular:1", 4),
            "topology random-regular:1: 4 workers cannot all be connected with 1 each; expected at "
            "least 2");
  EXPECT_EQ(refusal("complete", 6000),
            "topology complete: 17997000 edges with 6000 workers; expected at most 16777216");
}

class EdgeFile : public testing::Test {
 protected:
  EdgeFile() {
    std::string folder = (std::filesystem::temp_directory_path() / "skein-test-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    path_ = folder + "/edges.txt";
  }
  ~EdgeFile() override { std::filesystem::remove_all(folder_); }

  const std::string& with(const std::string& text) const {
    std::ofstream(path_) << text;
    return path_;
  }

  std::string folder_, path_;
};

TEST_F(EdgeFile, IsRead) {
  const Topology path = graph(with("# a path\n\n 0 1\n2\t1   # a comment\r\n2 3"), 4);
  EXPECT_EQ(path.edges(), (std::vector<Edge>{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(path.name(), path_);
}

TEST_F(EdgeFile, MayHaveAnEdgeInBothDirections) {
  EXPECT_EQ(edges(with("0 1\n1 0\n1 2\n1 2\n"), 3), 2u);
}

TEST_F(EdgeFile, OfOneWorkerMayBeEmpty) { EXPECT_EQ(edges(with("# nobody\n"), 1), 0u); }

TEST_F(EdgeFile, IsWhatIsPrinted) {
  for (const char* kind : {"exponential", "random-regular:5"}) {
    const Topology topology = graph(kind, 20);
    EXPECT_EQ(graph(with(print_edge_list(topology)), 20).edges(), topology.edges());
  }
}

TEST_F(EdgeFile, ErrorsHaveFileAndLine) {
  const auto error = [&](const std::string& text) {
    const std::string message = refusal(with(text), 4), prefix = "topology " + path_;
    EXPECT_EQ(message.rfind(prefix, 0), 0u) << message;
    return message.substr(std::min(message.size(), prefix.size()));
  };
  EXPECT_EQ(error("0 1\n1\n"), ":2: expected two ranks, not '1'");
  EXPECT_EQ(error("# x\n0 1 2 # y\n"), ":2: expected two ranks, not '0 1 2 '");
  EXPECT_EQ(error("0 4\n"), ":1: rank 4: expected a whole number from 0 to 3");
  EXPECT_EQ(error("0 1\n0 -1\n"), ":2: rank -1: expected a whole number from 0 to 3");
  EXPECT_EQ(error("0 1.5\n"), ":1: rank 1.5: expected a whole number from 0 to 3");
  EXPECT_EQ(error("0 1\n\n2 2\n"), ":3: rank 2 is no neighbour of its own");
  EXPECT_EQ(error("0 1\n2 3\n"), ": the graph is not connected: rank 0 cannot reach rank 2");
  EXPECT_EQ(error("1 2\n2 3\n"), ": the graph is not connected: rank 0 cannot reach rank 1");
  EXPECT_EQ(error(""), ": the graph is not connected: rank 0 cannot reach rank 1");
  EXPECT_EQ(refusal(folder_, 4), "topology " + folder_ + ": Is a directory");
}

}  // namespace
}  // namespace skein

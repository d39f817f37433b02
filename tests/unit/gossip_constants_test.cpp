// The constants of gossip against closed forms, and the ways to find them against each other.
#include "graph/gossip_constants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/rng.h"
#include "graph/laplacian_solver.h"

namespace skein {
namespace {

GossipConstants constants(const std::string& kind, int workers, double rate = 1,
                          Solver solver = Solver::automatic) {
  return gossip_constants(Topology::parse(kind, workers, 1), rate, solver);
}

void expect_relative(double value, double expected, double tolerance, const std::string& what) {
  EXPECT_NEAR(value, expected, tolerance * std::abs(expected)) << what;
}

struct Row {
  const char* kind;
  int workers;
  double chi1, chi2, eta, alpha_tilde;
};

TEST(GossipConstants, TableOfTheAlgorithm) {
  for (const auto& [kind, workers, chi1, chi2, eta, alpha_tilde] :
       {Row{"ring", 8, 3.41421, 0.87500, 0.289281, 0.98767},
        Row{"ring", 64, 207.67253, 0.98438, 0.034970, 7.26238},
        Row{"complete", 64, 0.98438, 0.98438, 0.507937, 0.50000}})
    for (const Solver solver : {Solver::dense, Solver::sparse}) {
      const GossipConstants found = constants(kind, workers, 1, solver);
      const std::string what = kind + std::to_string(workers);
      expect_relative(found.chi1, chi1, 1e-4, what);
      expect_relative(found.chi2, chi2, 1e-4, what);
      expect_relative(found.eta, eta, 1e-4, what);
      expect_relative(found.alpha_tilde, alpha_tilde, 1e-4, what);
      EXPECT_EQ(found.alpha, 0.5);
    }
}

TEST(GossipConstants, RingInClosedForm) {
  for (const int workers : {2, 3, 4, 5, 17, 100, 333})
    for (const double rate : {0.25, 1.0, 2.0, 7.5}) {
      const GossipConstants found = constants("ring", workers, rate);
      const double chi1 = 1 / (1 - std::cos(2 * std::numbers::pi / workers)) / rate;
      const double chi2 = (workers - 1.0) / workers / rate;
      const std::string what = std::to_string(workers) + " at " + std::to_string(rate);
      expect_relative(found.chi1, chi1, 1e-6, what);
      expect_relative(found.chi2, chi2, 1e-6, what);
      expect_relative(found.eta, 1 / (2 * std::sqrt(chi1 * chi2)), 1e-6, what);
      expect_relative(found.alpha_tilde, std::sqrt(chi1 / chi2) / 2, 1e-6, what);
    }
}

TEST(GossipConstants, CompleteAndStarInClosedForm) {
  for (const int workers : {2, 3, 10, 77}) {
    const double part = (workers - 1.0) / workers;
    const GossipConstants complete = constants("complete", workers, 2);
    expect_relative(complete.chi1, part / 2, 1e-6, "complete");
    expect_relative(complete.chi2, part / 2, 1e-6, "complete");
    expect_relative(complete.alpha_tilde, 0.5, 1e-6, "acid and gossip coincide");
    const GossipConstants star = constants("star", workers, 2);
    expect_relative(star.chi1, workers == 2 ? part / 2 : part, 1e-6, "star");
    expect_relative(star.chi2, part / 2, 1e-6, "star");
  }
}

// On a group of cyclic factors the eigenvectors of Λ are Fourier's: rows · columns of them, and
// all ranks are alike.
GossipConstants by_fourier(const Topology& graph, int rows, int columns) {
  const auto wave = [&](int k, int l, int rank) {
    return std::cos(2 * std::numbers::pi *
                    (1.0 * k * (rank / columns) / rows + 1.0 * l * (rank % columns) / columns));
  };
  GossipConstants found;
  std::vector<double> resistance(static_cast<std::size_t>(graph.size()));
  for (int k = 0; k < rows; ++k)
    for (int l = k == 0 ? 1 : 0; l < columns; ++l) {
      double eigenvalue = 0;
      for (const int other : graph.neighbours(0))
        eigenvalue += (1 - wave(k, l, other)) / graph.degree(0);
      found.chi1 = std::max(found.chi1, 1 / eigenvalue);
      for (const int other : graph.neighbours(0))
        resistance[static_cast<std::size_t>(other)] +=
            2 * (1 - wave(k, l, other)) / eigenvalue / graph.size();
    }
  for (const double each : resistance) found.chi2 = std::max(found.chi2, each / 2);
  return found;
}

TEST(GossipConstants, ExponentialAndTorusByFourier) {
  const auto compare = [](const std::string& kind, int rows, int columns) {
    const Topology graph = Topology::parse(kind, rows * columns, 1);
    const GossipConstants expected = by_fourier(graph, rows, columns);
    for (const Solver solver : {Solver::dense, Solver::sparse}) {
      const GossipConstants found = gossip_constants(graph, 1, solver);
      const std::string what = kind + " of " + std::to_string(rows * columns);
      expect_relative(found.chi1, expected.chi1, 1e-6, what);
      expect_relative(found.chi2, expected.chi2, 1e-6, what);
    }
  };
  for (const int workers : {2, 6, 12, 16, 64, 100}) compare("exponential", 1, workers);
  compare("torus:4x8", 4, 8);
  compare("torus:2x9", 2, 9);
  compare("torus", 10, 12);
}

TEST(GossipConstants, OneWorkerAveragesWithNobody) {
  const GossipConstants found = constants("ring", 1);
  EXPECT_EQ(found.chi1, 0);
  EXPECT_EQ(found.chi2, 0);
  EXPECT_EQ(found.eta, 0);
  EXPECT_EQ(found.alpha, 0.5);
  EXPECT_EQ(found.alpha_tilde, 0.5);
  EXPECT_EQ(found.time_with_momentum(), 0);
}

// A tree and some more edges, with degrees from 1 to many.
Topology irregular(int workers, int more, std::uint64_t seed) {
  Rng rng(seed);
  const auto below = [&](int bound) {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(bound)));
  };
  std::vector<Edge> edges;
  for (int rank = 1; rank < workers; ++rank) edges.push_back({below(rank), rank});
  for (int i = 0; i < more; ++i) {
    const int b = 1 + below(workers - 1);
    edges.push_back({below(b), b});
  }
  return {"irregular", workers, edges};
}

std::vector<FiringEdge> with_random_rates(const Topology& graph, Rng rng) {
  std::vector<FiringEdge> edges;
  for (const auto& [a, b] : graph.edges()) edges.push_back({a, b, rng.uniform(0.01, 10)});
  return edges;
}

TEST(Spectrum, SparseAndDenseAgree) {
  std::vector<Topology> graphs;
  for (const char* kind : {"ring", "star", "torus", "exponential", "random-regular:3", "complete"})
    for (const int workers : {4, 36, 150}) graphs.push_back(Topology::parse(kind, workers, 3));
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    graphs.push_back(irregular(120, static_cast<int>(20 * seed), seed));
  for (const Topology& graph : graphs) {
    const auto edges = with_random_rates(graph, Rng(5));
    const Spectrum dense = dense_spectrum(graph.size(), edges);
    const Spectrum sparse = sparse_spectrum(graph.size(), edges);
    const std::string what = graph.name() + " of " + std::to_string(graph.size());
    expect_relative(sparse.second_eigenvalue, dense.second_eigenvalue, 1e-6, what);
    expect_relative(sparse.largest_resistance, dense.largest_resistance, 1e-6, what);
  }
}

TEST(Spectrum, FactorsAndIterationAgree) {
  for (const Topology& graph :
       {Topology::parse("ring", 50, 1), Topology::parse("exponential", 101, 1),
        Topology::parse("complete", 40, 1), irregular(150, 60, 4), irregular(2, 0, 1)}) {
    const auto edges = with_random_rates(graph, Rng(6));
    const auto factor = factorise(graph.size(), edges), iteration = iterate(graph.size(), edges);
    ASSERT_NE(factor, nullptr);
    const double eigenvalue = dense_spectrum(graph.size(), edges).second_eigenvalue;
    expect_relative(iteration->largest_resistance(eigenvalue),
                    factor->largest_resistance(eigenvalue), 1e-6, graph.name());
    std::vector<double> v(static_cast<std::size_t>(graph.size()));
    v.front() = 1;
    v.back() = -1;
    const auto x = factor->solve(v), y = iteration->solve(v);
    for (std::size_t i = 0; i < v.size(); ++i)
      EXPECT_NEAR(x[i] - x[0], y[i] - y[0], 1e-7 * std::abs(x.front() - x.back())) << graph.name();
  }
}

TEST(Spectrum, GraphsAboveTheLimitAreSparse) {
  constexpr int kWorkers = 20'000;  // as a dense matrix, 3 GB
  const GossipConstants found = constants("ring", kWorkers);
  expect_relative(found.chi1, 1 / (1 - std::cos(2 * std::numbers::pi / kWorkers)), 1e-6, "chi1");
  expect_relative(found.chi2, 1 - 1.0 / kWorkers, 1e-6, "chi2");
}

TEST(Spectrum, FactorsThatWouldBeFullAreNotTried) {
  const auto edges = with_random_rates(Topology::parse("exponential", 4096, 1), Rng(1));
  EXPECT_EQ(factorise(4096, edges), nullptr);
}

TEST(GossipConstantsDeathTest, RateIsChecked) {
  for (const double rate : {0.0, -1.0, std::nan("")})
    EXPECT_DEATH(constants("ring", 4, rate), "a rate of");
}

}  // namespace
}  // namespace skein

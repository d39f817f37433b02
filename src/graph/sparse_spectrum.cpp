// As gaussian_process.cpp has it: no vector instructions, and an Eigen of our own.
#define EIGEN_DONT_VECTORIZE
#define Eigen skein_eigen
#include <Eigen/Eigenvalues>
#undef Eigen

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/rng.h"
#include "graph/laplacian_solver.h"

namespace skein {
namespace {

using Matrix = skein_eigen::MatrixXd;
using Vector = skein_eigen::VectorXd;

constexpr double kTolerance = 1e-7;  // relative
constexpr int kMostSteps = 1000;

Vector off_the_mean(const Vector& v) { return v.array() - v.mean(); }

Vector random_start(int size) {
  Rng rng(1);
  Vector v(size);
  for (double& each : v) each = rng.normal();
  return off_the_mean(v).normalized();
}

// The largest eigenvalue of a symmetric tridiagonal matrix, and the last element of its vector.
struct Ritz {
  double value, last;
};

Ritz largest(const std::vector<double>& diagonal, const std::vector<double>& beside) {
  const auto size = static_cast<skein_eigen::Index>(diagonal.size());
  skein_eigen::SelfAdjointEigenSolver<Matrix> solver;
  solver.computeFromTridiagonal(skein_eigen::Map<const Vector>(diagonal.data(), size),
                                skein_eigen::Map<const Vector>(beside.data(), size - 1));
  SKEIN_CHECK(solver.info() == skein_eigen::Success, "a tridiagonal matrix of {}", size);
  return {solver.eigenvalues()[size - 1], solver.eigenvectors()(size - 1, size - 1)};
}

// The largest eigenvalue of Λ⁺ by Lanczos' method. Every vector is made orthogonal to all before
// it: there are few, and rounding would bring the constant vector and found ones back. An
// eigenvalue is no further from `value` than the residual.
double largest_of_inverse(int size, const LaplacianSolver& solver) {
  std::vector<Vector> basis{random_start(size)};
  std::vector<double> diagonal, beside;
  while (true) {
    const std::vector<double> v(basis.back().begin(), basis.back().end());
    Vector next = off_the_mean(skein_eigen::Map<const Vector>(solver.solve(v).data(), size));
    diagonal.push_back(basis.back().dot(next));
    for (int pass = 0; pass < 2; ++pass) {
      for (const Vector& each : basis) next -= each.dot(next) * each;
      next = off_the_mean(next);
    }
    beside.push_back(next.norm());
    const auto [value, last] = largest(diagonal, beside);
    if (beside.back() * std::abs(last) <= kTolerance * value) return value;
    SKEIN_CHECK(basis.size() < kMostSteps, "no eigenvalue after {} steps", basis.size());
    basis.push_back(next / beside.back());
  }
}

}  // namespace

Spectrum sparse_spectrum(int size, const std::vector<FiringEdge>& edges) {
  std::unique_ptr<LaplacianSolver> solver = factorise(size, edges);
  if (!solver) solver = iterate(size, edges);
  const double second_eigenvalue = 1 / largest_of_inverse(size, *solver);
  return {second_eigenvalue, solver->largest_resistance(second_eigenvalue)};
}

}  // namespace skein

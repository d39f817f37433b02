// As gaussian_process.cpp has it: no vector instructions, and an Eigen of our own.
#define EIGEN_DONT_VECTORIZE
#define Eigen skein_eigen
#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#undef Eigen

#include <algorithm>

#include "core/check.h"
#include "graph/spectrum.h"

namespace skein {
namespace {

using Matrix = skein_eigen::MatrixXd;

Matrix laplacian(int size, const std::vector<FiringEdge>& edges) {
  Matrix result = Matrix::Zero(size, size);
  for (const auto& [a, b, rate] : edges) {
    result(a, a) += rate;
    result(b, b) += rate;
    result(a, b) -= rate;
    result(b, a) -= rate;
  }
  return result;
}

double second_eigenvalue(const Matrix& matrix) {
  const skein_eigen::SelfAdjointEigenSolver<Matrix> solver(matrix, skein_eigen::EigenvaluesOnly);
  SKEIN_CHECK(solver.info() == skein_eigen::Success, "{} eigenvalues", matrix.rows());
  return solver.eigenvalues()[1];
}

// Λ has no inverse, but Λ + 11ᵀ/n has, which differs from Λ⁺ by a constant: that cancels in every
// resistance.
double largest_resistance(Matrix matrix, const std::vector<FiringEdge>& edges) {
  const auto size = matrix.rows();
  matrix.array() += 1.0 / static_cast<double>(size);
  const Matrix inverse = matrix.llt().solve(Matrix::Identity(size, size));
  double largest = 0;
  for (const auto& [a, b, rate] : edges)
    largest = std::max(largest, inverse(a, a) + inverse(b, b) - 2 * inverse(a, b));
  return largest;
}

}  // namespace

Spectrum dense_spectrum(int size, const std::vector<FiringEdge>& edges) {
  const Matrix matrix = laplacian(size, edges);
  return {second_eigenvalue(matrix), largest_resistance(matrix, edges)};
}

}  // namespace skein

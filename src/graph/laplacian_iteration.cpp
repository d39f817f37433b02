// As gaussian_process.cpp has it: no vector instructions, and an Eigen of our own.
#define EIGEN_DONT_VECTORIZE
#define Eigen skein_eigen
#include <Eigen/SparseCore>
#undef Eigen

#include <algorithm>
#include <array>

#include "core/check.h"
#include "graph/laplacian_solver.h"

namespace skein {
namespace {

// Right-hand sides at a time: Λ passes through the caches once for all of them.
constexpr int kBlock = 8;

constexpr double kTolerance = 2e-7;  // relative, of each of the four parts of a resistance

using Matrix = skein_eigen::SparseMatrix<double, skein_eigen::RowMajor>;
using Vector = skein_eigen::VectorXd;
using Block = skein_eigen::Matrix<double, skein_eigen::Dynamic, kBlock, skein_eigen::RowMajor>;
using Row = skein_eigen::Array<double, 1, kBlock>;

Matrix laplacian(int size, const std::vector<FiringEdge>& edges) {
  std::vector<skein_eigen::Triplet<double>> entries;
  entries.reserve(4 * edges.size());
  for (const auto& [a, b, rate] : edges) {
    entries.emplace_back(a, a, rate);
    entries.emplace_back(b, b, rate);
    entries.emplace_back(a, b, -rate);
    entries.emplace_back(b, a, -rate);
  }
  Matrix result(size, size);
  result.setFromTriplets(entries.begin(), entries.end());
  return result;
}

Row dot(const Block& a, const Block& b) {
  Row sum = Row::Zero();
  for (int i = 0; i < a.rows(); ++i) sum += a.row(i).array() * b.row(i).array();
  return sum;
}

// y += scale · x, each column by its own.
void add_scaled(Block& y, const Row& scale, const Block& x) {
  for (int i = 0; i < y.rows(); ++i) y.row(i).array() += scale * x.row(i).array();
}

// Columns side by side: compilers can vectorise that without changing the order of any sum.
Block multiply(const Matrix& matrix, const Block& block) {
  Block result(block.rows(), kBlock);
  for (int row = 0; row < matrix.rows(); ++row) {
    std::array<double, kBlock> sum{};
    for (Matrix::InnerIterator each(matrix, row); each; ++each) {
      const double* const from = block.row(each.col()).data();
      for (std::size_t i = 0; i < kBlock; ++i) sum[i] += each.value() * from[i];
    }
    std::copy(sum.begin(), sum.end(), result.row(row).data());
  }
  return result;
}

class IteratedLaplacian final : public LaplacianSolver {
 public:
  IteratedLaplacian(int size, const std::vector<FiringEdge>& edges)
      : edges_(edges),
        matrix_(laplacian(size, edges)),
        inverse_diagonal_(Vector(matrix_.diagonal()).cwiseInverse()) {}

  std::vector<double> solve(const std::vector<double>& v) const override {
    Block right = Block::Zero(matrix_.rows(), kBlock);
    right.col(0) = skein_eigen::Map<const Vector>(v.data(), matrix_.rows());
    const Vector x = conjugate_gradients(std::move(right), 1e-11).col(0);
    return {x.begin(), x.end()};
  }

  // With x_a = Λ⁺ e_a the resistance is (x_a)_a − (x_a)_b + (x_b)_b − (x_b)_a: one solution for
  // every vertex gives those of all edges. An element is off by the residual / λ₂ at most.
  double largest_resistance(double second_eigenvalue) const override {
    const double tolerance = kTolerance * second_eigenvalue * least_resistance();
    Matrix differences = matrix_;  // (x_a)_a − (x_a)_b at (a, b)
    const int size = static_cast<int>(matrix_.rows());
    for (int first = 0; first < size; first += kBlock) {
      const int last = std::min(first + kBlock, size);
      Block right = Block::Zero(size, kBlock);
      for (int a = first; a < last; ++a) {
        right.col(a - first).array() -= 1.0 / size;
        right(a, a - first) += 1;
      }
      const Block x = conjugate_gradients(std::move(right), tolerance);
      for (int a = first; a < last; ++a)
        for (Matrix::InnerIterator each(differences, a); each; ++each)
          each.valueRef() = x(a, a - first) - x(each.col(), a - first);
    }
    double largest = 0;
    for (const auto& [a, b, rate] : edges_)
      largest = std::max(largest, differences.coeff(a, b) + differences.coeff(b, a));
    return largest;
  }

 private:
  // The largest resistance is no less: the sum over edges of rate · resistance is n − 1 (Foster).
  double least_resistance() const {
    return 2 * static_cast<double>(matrix_.rows() - 1) / matrix_.diagonal().sum();
  }

  // Solves for every column until its residual is `tolerance` times what it was. A column that is
  // done rests: with nothing left but rounding errors, along which Λ is 0, it would fly off.
  Block conjugate_gradients(Block residual, double tolerance) const {
    const skein_eigen::Index most_steps = 10 * matrix_.rows() + 100;
    Block x = Block::Zero(residual.rows(), kBlock);
    Block direction = inverse_diagonal_.asDiagonal() * residual;
    Row slope = dot(residual, direction);
    const Row enough = tolerance * tolerance * dot(residual, residual);
    for (skein_eigen::Index step = 0;; ++step) {
      const auto open = (dot(residual, residual) > enough).eval();
      if (!open.any()) return x;
      SKEIN_CHECK(step < most_steps, "no solution after {} steps", step);
      const Block image = multiply(matrix_, direction);
      const Row length = open.select(slope / dot(direction, image), Row::Zero());
      add_scaled(x, length, direction);
      add_scaled(residual, -length, image);
      Block next = inverse_diagonal_.asDiagonal() * residual;
      const Row next_slope = dot(residual, next);
      add_scaled(next, open.select(next_slope / slope, Row::Zero()), direction);
      direction.swap(next);
      slope = next_slope;
    }
  }

  std::vector<FiringEdge> edges_;
  Matrix matrix_;
  Vector inverse_diagonal_;
};

}  // namespace

std::unique_ptr<LaplacianSolver> iterate(int size, const std::vector<FiringEdge>& edges) {
  return std::make_unique<IteratedLaplacian>(size, edges);
}

}  // namespace skein

// As gaussian_process.cpp has it: no vector instructions, and an Eigen of our own.
#define EIGEN_DONT_VECTORIZE
#define Eigen skein_eigen
#include <Eigen/SparseCholesky>
#undef Eigen

#include <algorithm>

#include "core/check.h"
#include "graph/laplacian_solver.h"

namespace skein {
namespace {

using Matrix = skein_eigen::SparseMatrix<double>;
using Vector = skein_eigen::VectorXd;

// Multiplications of a factorisation that takes a second or two.
constexpr double kMostWork = 1e9;

// The last vertex is grounded: without its row and column Λ is positive definite.
Matrix grounded_laplacian(int size, const std::vector<FiringEdge>& edges) {
  SKEIN_CHECK(size >= 2, "a Laplacian of {} vertices", size);
  std::vector<skein_eigen::Triplet<double>> entries;
  const auto add = [&](int row, int column, double value) {
    if (std::max(row, column) < size - 1) entries.emplace_back(row, column, value);
  };
  for (const auto& [a, b, rate] : edges) {
    add(a, a, rate);
    add(b, b, rate);
    add(a, b, -rate);
    add(b, a, -rate);
  }
  Matrix result(size - 1, size - 1);
  result.setFromTriplets(entries.begin(), entries.end());
  return result;
}

// P Λ Pᵀ = L D Lᵀ with P that keeps L sparse.
class Factor : public skein_eigen::SimplicialLDLT<Matrix> {
 public:
  // Multiplications, from the pattern alone.
  double work() const {
    double sum = 0;
    for (int column = 0; column < m_matrix.cols(); ++column) {
      const double count = m_matrix.outerIndexPtr()[column + 1] - m_matrix.outerIndexPtr()[column];
      sum += count * count;
    }
    return sum;
  }

  const Matrix& lower() const { return m_matrix; }  // L without its diagonal of ones
  const Vector& diagonal() const { return m_diag; }
  int place(int vertex) const { return m_P.size() > 0 ? m_P.indices()[vertex] : vertex; }
};

// The elements of (L D Lᵀ)⁻¹ on the diagonal and where L has elements, which is wherever Λ has
// some, at about the cost of the factorisation (Takahashi's equations): Z = D⁻¹L⁻¹ − (Lᵀ − 1)Z,
// columns from the last to the first. Column j needs those elements of Z only whose rows and
// columns are among the rows of column j of L, and there L has elements too.
struct SelectedInverse {
  Matrix lower;
  Vector diagonal;

  explicit SelectedInverse(const Factor& factor)
      : lower(factor.lower()), diagonal(factor.diagonal().cwiseInverse()) {
    Vector l = Vector::Zero(diagonal.size());  // column j of L
    Vector sum = l;                            // (Lᵀ − 1)Z in column j; the rest is left over
    for (int j = static_cast<int>(diagonal.size()) - 1; j >= 0; --j) {
      for (Matrix::InnerIterator each(lower, j); each; ++each) {
        l[each.row()] = each.value();
        sum[each.row()] = 0;
      }
      for (Matrix::InnerIterator each(lower, j); each; ++each) multiply(each.row(), l, sum);
      for (Matrix::InnerIterator each(lower, j); each; ++each) {
        diagonal[j] += l[each.row()] * sum[each.row()];
        each.valueRef() = -sum[each.row()];
        l[each.row()] = 0;
      }
    }
  }

  // Requires that they are the same or that L has an element there.
  double at(int i, int j) const {
    return i == j ? diagonal[i] : lower.coeff(std::max(i, j), std::min(i, j));
  }

 private:
  // Adds column k of Z, and row k as far as it is known, times l.
  void multiply(skein_eigen::Index k, const Vector& l, Vector& sum) const {
    sum[k] += diagonal[k] * l[k];
    for (Matrix::InnerIterator each(lower, k); each; ++each) {
      sum[each.row()] += each.value() * l[k];
      sum[k] += each.value() * l[each.row()];
    }
  }
};

class FactorisedLaplacian final : public LaplacianSolver {
 public:
  FactorisedLaplacian(int size, const std::vector<FiringEdge>& edges) : size_(size), edges_(edges) {
    const Matrix matrix = grounded_laplacian(size, edges);
    factor_.analyzePattern(matrix);
    if (too_full()) return;
    factor_.factorize(matrix);
    SKEIN_CHECK(factor_.info() == skein_eigen::Success, "the factors of a Laplacian");
  }

  bool too_full() const { return factor_.work() > kMostWork; }

  std::vector<double> solve(const std::vector<double>& v) const override {
    const Vector x = factor_.solve(skein_eigen::Map<const Vector>(v.data(), size_ - 1));
    std::vector<double> result(x.begin(), x.end());
    result.push_back(0);
    return result;
  }

  double largest_resistance(double) const override {
    const SelectedInverse inverse(factor_);
    const auto at = [&](int i, int j) {
      return std::max(i, j) == size_ - 1 ? 0 : inverse.at(factor_.place(i), factor_.place(j));
    };
    double largest = 0;
    for (const auto& [a, b, rate] : edges_)
      largest = std::max(largest, at(a, a) + at(b, b) - 2 * at(a, b));
    return largest;
  }

 private:
  int size_;
  std::vector<FiringEdge> edges_;
  Factor factor_;
};

}  // namespace

std::unique_ptr<LaplacianSolver> factorise(int size, const std::vector<FiringEdge>& edges) {
  auto solver = std::make_unique<FactorisedLaplacian>(size, edges);
  if (solver->too_full()) return nullptr;
  return solver;
}

}  // namespace skein

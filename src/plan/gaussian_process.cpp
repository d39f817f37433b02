#include "plan/gaussian_process.h"

// Vector instructions would add in another order on each processor. The name of our own keeps this
// Eigen apart from one with other settings in the program that links Skein.
#define EIGEN_DONT_VECTORIZE
#define Eigen skein_eigen
#include <Eigen/Cholesky>
#undef Eigen

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "core/portable_math.h"

namespace skein {
namespace {

using Matrix = skein_eigen::MatrixXd;
using Vector = skein_eigen::VectorXd;
// From 32 rows on Eigen's Cholesky cuts into blocks, whose size would depend on the caches.
static_assert(kMostSamples < 32);

struct Kernel {
  double length;     // in units of x
  double amplitude;  // standard deviation of the function
  double noise;      // standard deviation of an observation
};

constexpr std::array kLengths{1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0};
constexpr std::array kAmplitudes{0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6};
constexpr std::array kNoises{0.002, 0.01, 0.03};

// Matérn 5/2: twice differentiable, so that a kink in the curve does not make it ring.
double correlation(double distance, double length) {
  const double r = std::sqrt(5.0) * std::abs(distance) / length;
  return (1 + r + r * r / 3) * portable_exp(-r);
}

Matrix correlations(std::span<const Sample> samples, double length) {
  const int n = static_cast<int>(samples.size());
  Matrix result(n, n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      result(i, j) = correlation(
          samples[static_cast<std::size_t>(i)].x - samples[static_cast<std::size_t>(j)].x, length);
  return result;
}

// Replaces v by L⁻¹ v. Not Eigen's, whose use of the stack clang-tidy takes for a leak.
void solve_lower(const Matrix& l, Vector& v) {
  for (int i = 0; i < v.size(); ++i) {
    for (int j = 0; j < i; ++j) v[i] -= l(i, j) * v[j];
    v[i] /= l(i, i);
  }
}

// The process given the samples, for one kernel.
class Posterior {
 public:
  Posterior(std::span<const Sample> samples, const Matrix& correlations, const Kernel& kernel)
      : samples_(samples), kernel_(kernel) {
    const int n = static_cast<int>(samples.size());
    Matrix covariance = kernel.amplitude * kernel.amplitude * correlations;
    covariance.diagonal().array() += kernel.noise * kernel.noise;
    const skein_eigen::LLT<Matrix> cholesky(covariance);
    SKEIN_CHECK(cholesky.info() == skein_eigen::Success, "covariance of {} samples", n);
    factor_ = cholesky.matrixLLT();

    Vector ones = Vector::Ones(n), values(n);
    for (int i = 0; i < n; ++i) values[i] = samples[static_cast<std::size_t>(i)].y;
    solve_lower(factor_, ones);
    solve_lower(factor_, values);
    level_ = ones.dot(values) / ones.squaredNorm();
    residual_ = values - level_ * ones;
  }

  double log_likelihood() const {
    double log_determinant = 0;
    for (int i = 0; i < residual_.size(); ++i) log_determinant += portable_log(factor_(i, i));
    return -0.5 * residual_.squaredNorm() - log_determinant;
  }

  Belief at(double x) const {
    const double variance = kernel_.amplitude * kernel_.amplitude;
    Vector covariances(residual_.size());
    for (int i = 0; i < residual_.size(); ++i)
      covariances[i] =
          variance * correlation(x - samples_[static_cast<std::size_t>(i)].x, kernel_.length);
    solve_lower(factor_, covariances);
    const double left = variance - covariances.squaredNorm();
    return {level_ + covariances.dot(residual_), std::sqrt(std::max(left, 0.0))};
  }

 private:
  std::span<const Sample> samples_;
  Kernel kernel_;
  Matrix factor_;     // L of the covariance's Cholesky factors, below and on the diagonal
  double level_ = 0;  // what the process returns to far from all samples
  Vector residual_;   // L⁻¹ (y − level)
};

Kernel likeliest(std::span<const Sample> samples) {
  Kernel best{};
  double most = -std::numeric_limits<double>::infinity();
  for (const double length : kLengths) {
    const Matrix shape = correlations(samples, length);
    for (const double amplitude : kAmplitudes)
      for (const double noise : kNoises) {
        const Kernel kernel{length, amplitude, noise};
        const double likelihood = Posterior(samples, shape, kernel).log_likelihood();
        if (likelihood > most) {
          most = likelihood;
          best = kernel;
        }
      }
  }
  return best;
}

double normal_density(double z) {
  constexpr double kScale = 0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return kScale * portable_exp(-0.5 * z * z);
}

}  // namespace

std::vector<Belief> regress(std::span<const Sample> samples, std::span<const double> places) {
  SKEIN_CHECK(!samples.empty() && samples.size() <= kMostSamples, "{} samples", samples.size());
  const Kernel kernel = likeliest(samples);
  const Posterior posterior(samples, correlations(samples, kernel.length), kernel);
  std::vector<Belief> beliefs;
  beliefs.reserve(places.size());
  for (const double x : places) beliefs.push_back(posterior.at(x));
  return beliefs;
}

double expected_improvement(const Belief& belief, double least) {
  const double gain = least - belief.mean;
  if (!(belief.deviation > 0)) return std::max(gain, 0.0);
  const double z = gain / belief.deviation;
  return std::max(gain * normal_cdf(z) + belief.deviation * normal_density(z), 0.0);
}

double normal_cdf(double z) {
  if (z < -8) return 0;
  if (z > 8) return 1;
  // Marsaglia's series: ½ + φ(z) (z + z³/3 + z⁵/(3·5) + …).
  double sum = z, term = z, before = 0;
  for (int i = 3; sum != before; i += 2) {
    before = sum;
    term *= z * z / i;
    sum += term;
  }
  return 0.5 + sum * normal_density(z);
}

}  // namespace skein

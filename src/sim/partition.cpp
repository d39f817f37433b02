#include "sim/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/portable_math.h"
#include "skein/error.h"

namespace skein::sim {
namespace {

using Parts = std::vector<std::vector<std::uint32_t>>;

enum PartitionStream : std::uint64_t { kShares, kPartOrder };

// The logarithm of a gamma variate of this shape (Marsaglia and Tsang, 2000). The variate itself
// would underflow at small shapes.
double log_gamma_variate(Rng& rng, double shape) {
  if (shape < 1) {
    const double boost = portable_log(1 - rng.uniform()) / shape;
    return log_gamma_variate(rng, shape + 1) + boost;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = rng.normal(), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root, log_v = portable_log(v);
    if (portable_log(1 - rng.uniform()) < 0.5 * x * x + d * (1 - v + log_v)) {
      return portable_log(d) + log_v;
    }
  }
}

Parts samples_by_class(std::span<const int> labels, int classes) {
  Parts members(static_cast<std::size_t>(classes));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    SKEIN_CHECK(labels[i] >= 0 && labels[i] < classes, "sample {} has label {} of {} classes", i,
                labels[i], classes);
    members[static_cast<std::size_t>(labels[i])].push_back(static_cast<std::uint32_t>(i));
  }
  return members;
}

// Deals `members`, in random order, to the parts in proportion to `shares`.
void deal(const std::vector<std::uint32_t>& members, const std::vector<double>& shares, Rng& rng,
          Parts& parts) {
  const auto order = rng.permutation(static_cast<std::uint32_t>(members.size()));
  const auto count = static_cast<double>(members.size());
  double sum = 0;
  std::size_t dealt = 0;
  for (std::size_t worker = 0; worker < parts.size(); ++worker) {
    sum += shares[worker];
    const auto rounded = static_cast<std::size_t>(std::min(sum * count + 0.5, count));
    const std::size_t end = worker + 1 == parts.size() ? members.size() : rounded;
    for (; dealt < end; ++dealt) parts[worker].push_back(members[order[dealt]]);
  }
}

void feed_the_empty(Parts& parts) {
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  for (auto& part : parts) {
    if (!part.empty()) continue;
    auto& donor = *std::max_element(parts.begin(), parts.end(), shorter);
    part.push_back(donor.back());
    donor.pop_back();
  }
}

Parts whole_set_each(std::size_t samples, int workers) {
  std::vector<std::uint32_t> all(samples);
  std::iota(all.begin(), all.end(), 0u);
  return Parts(static_cast<std::size_t>(workers), all);
}

}  // namespace

std::vector<double> dirichlet(Rng& rng, double alpha, int count) {
  SKEIN_CHECK(alpha > 0 && std::isfinite(alpha) && count >= 1, "dirichlet({}) of {}", alpha, count);
  // Below this the logarithms would overflow; the shares are one 1 and zeros long before.
  const double shape = std::max(alpha, 1e-200);
  std::vector<double> shares(static_cast<std::size_t>(count));
  for (double& share : shares) share = log_gamma_variate(rng, shape);
  const double largest = *std::max_element(shares.begin(), shares.end());
  double sum = 0;
  for (double& share : shares) sum += share = portable_exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

Parts partition(std::span<const int> labels, int classes, int workers, std::optional<double> alpha,
                std::uint64_t seed) {
  SKEIN_CHECK(classes >= 1 && workers >= 1, "{} classes, {} workers", classes, workers);
  if (alpha && !(*alpha > 0)) {
    throw ConfigError(fmt::format("dirichlet is {}: expected a number above 0", *alpha));
  }
  const auto parts_count = static_cast<std::size_t>(workers);
  if (labels.empty() || (alpha && std::isfinite(*alpha) && labels.size() < parts_count)) {
    throw ConfigError(fmt::format("{} samples for {} workers: expected at least one for each",
                                  labels.size(), workers));
  }
  if (!alpha || std::isinf(*alpha)) return whole_set_each(labels.size(), workers);

  Rng shares = Rng(seed).split(kShares), order = Rng(seed).split(kPartOrder);
  Parts parts(parts_count);
  for (const auto& members : samples_by_class(labels, classes)) {
    deal(members, dirichlet(shares, *alpha, workers), order, parts);
  }
  feed_the_empty(parts);
  return parts;
}

SampleStream::SampleStream(std::vector<std::uint32_t> held, Rng rng)
    : held_(std::move(held)), rng_(rng) {
  SKEIN_CHECK(!held_.empty(), "a stream of no samples");
}

std::span<const std::uint32_t> SampleStream::next(std::int64_t count) {
  SKEIN_CHECK(count >= 0, "next({})", count);
  batch_.resize(static_cast<std::size_t>(count));
  for (auto& number : batch_) {
    if (position_ == order_.size()) {
      order_ = rng_.permutation(static_cast<std::uint32_t>(held_.size()));
      position_ = 0;
    }
    number = held_[order_[position_++]];
  }
  return batch_;
}

}  // namespace skein::sim

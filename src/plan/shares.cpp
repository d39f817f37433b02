#include "plan/shares.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "core/check.h"

namespace skein {

Share share_of(const std::vector<std::int64_t>& counts, int rank) {
  SKEIN_CHECK(rank >= 0 && rank < std::ssize(counts), "rank {} of {}", rank, counts.size());
  return {std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0}),
          counts[static_cast<std::size_t>(rank)]};
}

std::vector<std::int64_t> even_shares(std::int64_t samples, int workers) {
  SKEIN_CHECK(samples >= 0 && workers > 0, "{} samples for {} workers", samples, workers);
  std::vector<std::int64_t> shares(static_cast<std::size_t>(workers), samples / workers);
  for (std::int64_t i = 0; i < samples % workers; ++i) ++shares[static_cast<std::size_t>(i)];
  return shares;
}

std::vector<std::int64_t> proportional_shares(std::int64_t samples,
                                              const std::vector<double>& speeds) {
  const double total = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  SKEIN_CHECK(samples >= 0 && total > 0, "{} samples over a summed speed of {}", samples, total);
  const auto workers = static_cast<std::int64_t>(speeds.size());
  const std::int64_t least = samples >= workers ? 1 : 0;
  const auto rest = static_cast<double>(samples - least * workers);
  std::vector<std::int64_t> shares(speeds.size(), least);
  std::vector<double> remainder(speeds.size());
  std::int64_t given = least * workers;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    // Aim at the exact share, but never below the one sample that everybody gets.
    const double exact = std::max(
        0.0, static_cast<double>(samples) * speeds[i] / total - static_cast<double>(least));
    const double whole = std::min(std::floor(exact), rest);
    shares[i] += static_cast<std::int64_t>(whole);
    given += static_cast<std::int64_t>(whole);
    remainder[i] = exact - whole;
  }
  std::vector<std::size_t> order(speeds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; given < samples; i = (i + 1) % order.size(), ++given) ++shares[order[i]];
  // The minimum of one may have given away more than there is: take it back from the largest.
  for (; given > samples; --given) --*std::max_element(shares.begin(), shares.end());
  return shares;
}

}  // namespace skein

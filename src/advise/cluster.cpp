#include "advise/cluster.h"

#include <algorithm>

#include "core/portable_math.h"

namespace skein::advise {
namespace {

double power(double base, double exponent) { return portable_exp(exponent * portable_log(base)); }

}  // namespace

sim::Scenario with_bandwidth(const sim::Scenario& cluster, double bytes_per_second) {
  sim::Scenario changed = cluster;
  const double factor = bytes_per_second / cluster.network.bytes_per_second;
  changed.network.bytes_per_second = bytes_per_second;
  for (sim::LinkOverride& link : changed.network.links) link.bytes_per_second *= factor;
  return changed;
}

double ratio_of(const sim::Scenario& cluster) {
  if (cluster.speeds.empty()) return 1;
  const auto [slowest, fastest] = std::minmax_element(cluster.speeds.begin(), cluster.speeds.end());
  return *fastest / *slowest;
}

sim::Scenario with_ratio(const sim::Scenario& cluster, double ratio) {
  sim::Scenario changed = cluster;
  const auto count = static_cast<std::size_t>(cluster.workers);
  std::vector<double> speeds(count, 1);
  const double now = ratio_of(cluster);
  double before = 0, after = 0;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const double old = cluster.speeds.empty() ? 1 : cluster.speeds[rank];
    const double place =
        static_cast<double>(rank) / static_cast<double>(std::max<std::size_t>(1, count - 1));
    speeds[rank] =
        now > 1 ? power(old, portable_log(ratio) / portable_log(now)) : power(ratio, place);
    before += old;
    after += speeds[rank];
  }
  for (double& speed : speeds) speed *= before / after;
  changed.speeds = speeds;
  return changed;
}

}  // namespace skein::advise

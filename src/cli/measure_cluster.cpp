#include "cli/measure_cluster.h"

#include <bit>
#include <cmath>

#include "runtime/measure_fabric.h"
#include "runtime/world_impl.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kMeasuredBytes = 16'000'000;
constexpr std::chrono::seconds kMeasuredTime(5);

double median_ms(const FabricReport& report, const char* operation) {
  for (const FabricTimes& each : report.operations)
    if (each.name == operation) return each.times.p50_ms;
  throw Error("the fabric has no " + std::string(operation));
}

}  // namespace

MeasuredCluster measure_cluster(World& world, int per_host, const ProfileOptions* model) {
  MeasuredCluster out;
  out.workers = world.size();
  out.workers_per_host = per_host;
  std::vector<double> times(static_cast<std::size_t>(world.size()));
  if (model != nullptr) {
    out.profile = measure_profile(*model, world);
    times[static_cast<std::size_t>(world.rank())] =
        seconds(out.profile.forward() + out.profile.backward());
    times = world.sum(times);
    for (const double time : times)
      out.speeds.push_back(std::round(100 * times.front() / time) / 100);
  }
  if (world.size() < 2) return out;
  world.impl().do_without_device();
  const FabricReport report = measure_fabric(world, kMeasuredBytes, {20, kMeasuredTime});
  // Where hosts have several workers, each byte crosses the network once for each host.
  const int hosts = world.size() / per_host;
  const int members = hosts > 1 ? hosts : world.size();
  out.bytes_per_second = 2.0 * (members - 1) / members * static_cast<double>(kMeasuredBytes) /
                         (median_ms(report, "all_reduce") / 1e3);
  const int rounds = std::bit_width(static_cast<unsigned>(world.size() - 1));
  out.latency = from_seconds(median_ms(report, "barrier") / 1e3 / rounds);
  return out;
}

}  // namespace skein

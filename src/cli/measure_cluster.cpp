#include "cli/measure_cluster.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "kernels/kernels.h"
#include "runtime/measure_fabric.h"
#include "runtime/world_impl.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr std::size_t kMeasuredBytes = 16'000'000;
constexpr std::chrono::seconds kMeasuredTime(5);
constexpr Channel kChannel = 0;
constexpr int kExchanges = 5;
constexpr double kSecondsOfExchange = 0.05, kFewestBytes = 1e5, kMostBytes = 16e6;

double median_ms(const FabricReport& report, const char* operation) {
  for (const FabricTimes& each : report.operations)
    if (each.name == operation) return each.times.p50_ms;
  throw Error("the fabric has no " + std::string(operation));
}

// Whom `host` meets in `round`, of the rounds in which each of `hosts` meets every other once; none
// (-1) where their number is odd and this one is left over. Hosts sit around a table but for the
// last, which meets who would meet himself.
int met_by(int host, int round, int hosts) {
  const int even = hosts + hosts % 2, around = even - 1;
  const int itself = round * (even / 2) % around;
  int other = (round - host + 2 * around) % around;
  if (host == around) other = itself;
  if (host == itself) other = around;
  return other < hosts ? other : -1;
}

// The fastest of some exchanges by the first workers of two hosts; all other pairs make theirs at
// the same time.
std::vector<MeasuredLink> measure_links(World& world, int per_host, double bytes_per_second) {
  const int hosts = world.size() / per_host;
  if (hosts < 2) return {};
  const auto count = static_cast<std::size_t>(
      std::clamp(kSecondsOfExchange * bytes_per_second, kFewestBytes, kMostBytes) / sizeof(float));
  std::unique_ptr<Memory> mine, theirs;
  Fabric& fabric = world.impl().fabric();
  world.impl().finish([&] {
    mine = fabric.allocate(count);
    theirs = fabric.allocate(count);
    fill(mine->span(), 0);
  });
  const int host = world.rank() / per_host;
  const bool first = world.rank() % per_host == 0;
  std::vector<double> rates(static_cast<std::size_t>(hosts) * static_cast<std::size_t>(hosts));
  const SteadyClock clock;
  for (int round = 0; round < hosts - 1 + hosts % 2; ++round) {
    const int other = met_by(host, round, hosts);
    Duration least = Duration::max();
    world.barrier();
    for (int i = 0; i < kExchanges && first && other >= 0; ++i) {
      const Time begin = clock.now();
      world.impl().courier().wait(fabric.exchange(kChannel, other * per_host, mine->span(),
                                                  theirs->span(), world.impl().deadline()));
      least = std::min(least, clock.now() - begin);
    }
    if (first && other > host)
      rates[static_cast<std::size_t>(host * hosts + other)] =
          static_cast<double>(count * sizeof(float)) / seconds(least);
  }
  rates = world.sum(rates);
  std::vector<MeasuredLink> out;
  for (int from = 0; from < hosts; ++from)
    for (int to = from + 1; to < hosts; ++to)
      out.push_back({from, to, rates[static_cast<std::size_t>(from * hosts + to)]});
  return out;
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
  out.links = measure_links(world, per_host, out.bytes_per_second);
  return out;
}

}  // namespace skein

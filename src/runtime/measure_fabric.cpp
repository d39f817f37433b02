#include "runtime/measure_fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/file_descriptor.h"
#include "core/statistics.h"
#include "kernels/kernels.h"
#include "launch/environment.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

constexpr Channel kChannel = 0;
constexpr int kFewestRounds = 3;

// When one round began and ended on this worker, on the clock that all workers of a host share.
struct Lap {
  double begin_ms, end_ms;
};

// Whether the workers share a host, and with it a clock and memory.
bool on_one_host(World& world) { return world.fabric() == "local"; }

// Whether they share a clock: with nccl also on one host.
bool on_one_clock(World& world) {
  const auto placement = detect(process_environment);
  return on_one_host(world) ||
         (world.fabric() == "nccl" && placement && placement->local_size == placement->size);
}

// From the first worker's begin to the last one's end, of every round. Not the longest of the
// workers' own times: on a busy host a worker may get a core only when another has ended. Between
// hosts there is nothing else.
std::vector<double> whole_rounds(World& world, const std::vector<Lap>& mine, int batch) {
  std::vector<double> times;
  for (const Lap& lap : mine) times.insert(times.end(), {lap.begin_ms, lap.end_ms});
  const auto all = world.gather(times);
  std::vector<double> out;
  for (std::size_t at = 0; at < times.size(); at += 2) {
    double begin = times[at], end = times[at + 1];
    double longest = 0;
    for (const auto& each : all) {
      begin = std::min(begin, each[at]);
      end = std::max(end, each[at + 1]);
      longest = std::max(longest, each[at + 1] - each[at]);
    }
    out.push_back((on_one_clock(world) ? end - begin : longest) / batch);
  }
  return out;
}

Lap run_lap(World& world, const Contestant& contestant) {
  if (contestant.prepare) contestant.prepare();
  world.barrier();
  const SteadyClock clock;
  const Time begin = clock.now();
  for (int i = 0; i < contestant.batch; ++i) contestant.run();
  return {milliseconds(begin.time_since_epoch()), milliseconds(clock.now().time_since_epoch())};
}

// As rank 0 wants it: all must stop after the same round.
bool goes_on(World& world, bool wanted) {
  return world.sum({world.rank() == 0 && wanted ? 1.0 : 0.0}).front() > 0;
}

// Lower bounds on an ideal link, for the algorithms of fabric/collectives.h.
class IdealLink {
 public:
  IdealLink(const JoinOptions& options, int size) : options_(options), size_(size) {}

  // `rounds` parts of `bytes` each, one after the other out of every worker; what leaves in one
  // round arrived in the one before, so either the bandwidth or the latency adds up.
  double ring_ms(int rounds, std::size_t bytes) const {
    const double part = transfer_ms(bytes);
    return std::max(rounds * part + latency_ms(), rounds * latency_ms() + part);
  }
  double tree_ms(std::size_t bytes) const { return levels() * (transfer_ms(bytes) + latency_ms()); }
  double barrier_ms() const {
    const bool extra = !std::has_single_bit(static_cast<unsigned>(size_));
    const int power_levels = static_cast<int>(std::bit_width(static_cast<unsigned>(size_))) - 1;
    return (power_levels + (extra ? 2 : 0)) * latency_ms();  // its bytes are not worth counting
  }

 private:
  double levels() const { return std::bit_width(static_cast<unsigned>(size_ - 1)); }
  double latency_ms() const { return milliseconds(options_.emulate_latency); }
  double transfer_ms(std::size_t bytes) const {
    const double rate = options_.emulate_bytes_per_second;
    return rate > 0 ? static_cast<double>(bytes) / rate * 1e3 : 0;
  }

  const JoinOptions& options_;
  int size_;
};

[[noreturn]] void fail(const char* what) {
  throw Error(fmt::format("memory to compare with: {}: {}", what, std::strerror(errno)));
}

// A vector of every worker, mapped by all: what memcpy can reach when no fabric stands in its way.
class CommonMemory {
 public:
  CommonMemory(World& world, std::size_t count)
      : count_(count), bytes_(page_up(count * sizeof(float))) {
    FileDescriptor file;
    if (world.rank() == 0) {
      file = FileDescriptor(::memfd_create("skein-bench", MFD_CLOEXEC));
      if (!file.valid()) fail("memfd_create");
      if (::ftruncate(file.get(), static_cast<off_t>(total(world))) != 0) fail("ftruncate");
    }
    const bool first = world.rank() == 0;
    const auto place = world.sum({first ? ::getpid() : 0.0, first ? file.get() : 0.0});
    if (!first)
      file = FileDescriptor(
          ::open(fmt::format("/proc/{}/fd/{}", place[0], place[1]).c_str(), O_RDWR | O_CLOEXEC));
    if (!file.valid()) fail("open");
    void* base = ::mmap(nullptr, total(world), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (base == MAP_FAILED) fail("mmap");
    base_ = static_cast<std::byte*>(base);
    mapped_ = total(world);
    world.barrier();  // rank 0 must not close the file before all have it
  }
  ~CommonMemory() { ::munmap(base_, mapped_); }
  CommonMemory(const CommonMemory&) = delete;
  CommonMemory& operator=(const CommonMemory&) = delete;

  Span of(int rank) const {
    return {reinterpret_cast<float*>(base_ + static_cast<std::size_t>(rank) * bytes_), count_};
  }

 private:
  static std::size_t page_up(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  std::size_t total(const World& world) const {
    return bytes_ * static_cast<std::size_t>(world.size());
  }

  std::size_t count_, bytes_, mapped_ = 0;
  std::byte* base_ = nullptr;
};

// The buffers of one worker and what is timed on them.
class Bench {
 public:
  Bench(World& world, std::size_t bytes)
      : world_(world),
        count_(std::max<std::size_t>(bytes / sizeof(float), 1)),
        part_(shard(count_, world.size(), 0).count * sizeof(float)),
        buffer_(allocate()),
        other_(allocate()) {
    if (on_one_host(world) && !on_device()) common_.emplace(world, count_);
  }

  FabricReport run(const Effort& effort) {
    const auto& options = world_.impl().options();
    const bool emulated =
        options.emulate_bytes_per_second > 0 || options.emulate_latency.count() > 0;
    std::vector<Contestant> contestants{
        operation("reduce_scatter",
                  [this] { return fabric().reduce_scatter(kChannel, span(), deadline()); }),
        memcpy_of_shards(),
        operation("all_gather",
                  [this] { return fabric().all_gather(kChannel, span(), deadline()); }),
        memcpy_of_shards(),
        operation("all_reduce",
                  [this] { return fabric().all_reduce(kChannel, span(), deadline()); }),
        operation("broadcast",
                  [this] { return fabric().broadcast(kChannel, span(), 0, deadline()); }),
        memcpy_of_all(),
        operation("barrier", [this] { return fabric().barrier(kChannel, deadline()); })};
    if (world_.size() % 2 == 0)
      contestants.push_back(operation("exchange", [this] {
        return fabric().exchange(kChannel, world_.rank() ^ 1, span(), other_->span(), deadline());
      }));
    const auto times = race(world_, contestants, effort);
    const double shards = (times[1].p50_ms + times[3].p50_ms) / 2;
    FabricReport report{{{"reduce_scatter", times[0], exchanged(), times[1].p50_ms},
                         {"all_gather", times[2], exchanged(), times[3].p50_ms},
                         {"all_reduce", times[4], 2 * exchanged(), 2 * shards},
                         {"broadcast", times[5], span().bytes(), times[6].p50_ms},
                         {"barrier", times[7], 0, 0}},
                        emulated};
    if (times.size() > 8) report.operations.push_back({"exchange", times[8], span().bytes(), 0});
    if (emulated) put_ideal_link(report);
    if (!common_ && !on_device())
      for (FabricTimes& each : report.operations) each.limit_ms = 0;
    return report;
  }

 private:
  Fabric& fabric() { return world_.impl().fabric(); }
  bool on_device() { return world_.impl().loop().queue() != nullptr; }
  std::unique_ptr<Memory> allocate() {
    std::unique_ptr<Memory> memory;
    world_.impl().finish([&] { memory = fabric().allocate(count_); });
    return memory;
  }
  Deadline deadline() const { return world_.impl().deadline(); }
  Span span() const { return buffer_->span(); }
  std::size_t exchanged() const { return part_ * static_cast<std::size_t>(world_.size() - 1); }

  // Zeros, because sums of anything else would in the end overflow.
  Contestant operation(const char* name, std::function<Task<>()> start) {
    const auto run = [this, start = std::move(start)] {
      world_.impl().courier().wait(start());
      if (on_device()) world_.impl().finish([] {});
    };
    return {name, run, 1, [this] { world_.impl().finish([this] { fill(span(), 0); }); }};
  }
  // What an all-gather must move, and as much as a reduce-scatter must.
  Contestant memcpy_of_shards() {
    if (on_device()) return copy_on_device({0, exchanged() / sizeof(float)});
    if (!common_) return {"nothing to compare with", [] {}};
    const auto run = [this] {
      for (int i = 1; i < world_.size(); ++i) {
        const int peer = (world_.rank() + i) % world_.size();
        const Range part = shard(count_, world_.size(), peer);
        std::memcpy(mine().at(part).data, common_->of(peer).at(part).data,
                    part.count * sizeof(float));
      }
    };
    return {"memcpy of shards", run, 1, [this] { fill(mine(), 0); }};
  }
  // What a broadcast must move: rank 0 has it already.
  Contestant memcpy_of_all() {
    if (on_device()) return copy_on_device({0, world_.rank() == 0 ? 0 : count_});
    if (!common_) return {"nothing to compare with", [] {}};
    const auto run = [this] {
      if (world_.rank() != 0) std::memcpy(mine().data, common_->of(0).data, mine().bytes());
    };
    return {"memcpy of all", run, 1, [this] { fill(mine(), 0); }};
  }

  Contestant copy_on_device(Range part) {
    const Range own{0, std::min(part.count, count_)};
    return {"copy on the device", [this, own] {
              world_.impl().finish([&] { copy(other_->span().at(own), buffer_->span().at(own)); });
            }};
  }

  void put_ideal_link(FabricReport& report) const {
    const IdealLink link(world_.impl().options(), world_.size());
    const int rounds = world_.size() - 1;
    report.operations[0].limit_ms = report.operations[1].limit_ms = link.ring_ms(rounds, part_);
    report.operations[2].limit_ms = link.ring_ms(2 * rounds, part_);
    report.operations[3].limit_ms = link.tree_ms(span().bytes());
    report.operations[4].limit_ms = link.barrier_ms();
    if (report.operations.size() > 5)
      report.operations[5].limit_ms = link.ring_ms(1, span().bytes());
  }

  Span mine() const { return common_->of(world_.rank()); }

  World& world_;
  std::size_t count_, part_;
  std::unique_ptr<Memory> buffer_, other_;
  std::optional<CommonMemory> common_;  // of workers of one host
};

}  // namespace

std::vector<Times> race(World& world, const std::vector<Contestant>& contestants,
                        const Effort& effort) {
  std::vector<std::vector<Lap>> laps(contestants.size());
  for (const Contestant& contestant : contestants) run_lap(world, contestant);
  const SteadyClock clock;
  const Time end = clock.now() + effort.time;
  for (int round = 0;
       round < kFewestRounds || (round < effort.rounds && goes_on(world, clock.now() < end));
       ++round)
    for (std::size_t i = 0; i < contestants.size(); ++i)
      laps[i].push_back(run_lap(world, contestants[i]));
  std::vector<Times> out;
  for (std::size_t i = 0; i < contestants.size(); ++i) {
    const auto whole = whole_rounds(world, laps[i], contestants[i].batch);
    out.push_back({static_cast<int>(whole.size()), quantile(whole, 0), quantile(whole, 0.5),
                   quantile(whole, 0.99)});
  }
  return out;
}

double FabricReport::headline() const {
  const FabricTimes& scatter = operations.at(0);
  const FabricTimes& gather = operations.at(1);
  const double limit = scatter.limit_ms + gather.limit_ms;
  return limit > 0 ? (scatter.times.p50_ms + gather.times.p50_ms) / limit : 0;
}

FabricReport measure_fabric(World& world, std::size_t bytes, const Effort& effort) {
  return Bench(world, bytes).run(effort);
}

}  // namespace skein

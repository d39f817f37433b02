// The fabrics of one host beside Gloo and MPI, in the same processes and in turns: bench_fabric
// [RANKS]
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "core/units.h"
#include "fabric/mpi/make_mpi.h"
#include "fabric/tcp/tcp.h"
#include "kernels/kernels.h"
#include "launch/environment.h"
#include "launch/launcher.h"
#include "launch/meeting_place.h"
#include "rival.h"
#include "runtime/measure_fabric.h"
#include "runtime/world_impl.h"
#include "skein/error.h"

namespace skein::bench {
namespace {

constexpr const char* kFolder = "SKEIN_BENCH_FOLDER";
constexpr const char* kRendezvous = "SKEIN_BENCH_RENDEZVOUS";

// `batch` operations are timed together where one alone would be lost in the clock's noise.
struct Size {
  std::size_t bytes;
  int batch;
};
constexpr Size kSizes[] = {{4096, 100}, {65536, 20}, {std::size_t{1} << 20, 4}, {25'000'000, 1}};
constexpr Effort kEffort{.rounds = 60, .time = std::chrono::seconds(20)};

// Skein's own part, in the shape of the others.
class Skein final : public Rival {
 public:
  explicit Skein(World& world) : world_(world) {}
  std::string name() const override { return world_.fabric(); }
  void prepare(float*, std::size_t count) override { memory_ = fabric().allocate(count); }
  void all_reduce() override { wait(fabric().all_reduce(0, memory_->span(), deadline())); }
  void reduce_scatter_and_all_gather() override {
    wait(fabric().reduce_scatter(0, memory_->span(), deadline()));
    wait(fabric().all_gather(0, memory_->span(), deadline()));
  }

 private:
  Fabric& fabric() { return world_.impl().fabric(); }
  Deadline deadline() { return world_.impl().deadline(); }
  void wait(Task<> task) { world_.impl().courier().wait(std::move(task)); }

  World& world_;
  std::unique_ptr<Memory> memory_;
};

using Rivals = std::vector<std::unique_ptr<Rival>>;

struct Verdict {
  std::string text;
  bool ok;
};

// Median of Skein, then of each rival, for one operation.
void print_row(std::size_t bytes, const char* operation, const Rivals& rivals,
               const std::vector<Times>& times) {
  fmt::print("{:>9}  {:<15}", print_bytes(static_cast<double>(bytes)), operation);
  for (std::size_t i = 0; i < rivals.size(); ++i)
    fmt::print("{:>14.4f}{:>9.4f}", times[i].min_ms, times[i].p50_ms);
  for (std::size_t i = 1; i < rivals.size(); ++i)
    fmt::print("{:>14.2f} x", times[i].p50_ms / times[0].p50_ms);
  fmt::print("\n");
}

void judge(std::size_t bytes, const Rivals& rivals, const std::vector<Times>& times,
           std::vector<Verdict>& verdicts) {
  for (std::size_t i = 1; i < rivals.size(); ++i) {
    if (rivals[i]->name() == "tcp" || rivals[i]->name() == "mpi") continue;
    const double ratio = times[i].p50_ms / times[0].p50_ms;
    const double large = rivals[i]->name() == "Gloo" ? 4 : 2;
    const double budget = bytes == std::end(kSizes)[-1].bytes ? large : 1;
    if (bytes != kSizes[0].bytes && budget == 1) continue;
    verdicts.push_back(
        {fmt::format("{} all-reduce over local's at {}: budget >= {} x: {:.2f} x",
                     rivals[i]->name(), print_bytes(static_cast<double>(bytes)), budget, ratio),
         ratio >= budget});
  }
}

void compare(World& world, const Rivals& rivals, const Size& size, std::vector<Verdict>& verdicts) {
  const std::size_t count = size.bytes / sizeof(float);
  std::vector<std::unique_ptr<Memory>> buffers;
  std::vector<Contestant> contestants;
  for (const auto& rival : rivals) {
    buffers.push_back(allocate_on_heap(count));
    rival->prepare(buffers.back()->span().host().data(), count);
    contestants.push_back({rival->name(), [&] { rival->all_reduce(); }, size.batch});
  }
  for (const auto& rival : rivals)
    contestants.push_back(
        {rival->name(), [&] { rival->reduce_scatter_and_all_gather(); }, size.batch});
  const auto times = race(world, contestants, kEffort);
  const auto half = static_cast<std::ptrdiff_t>(rivals.size());
  const std::vector<Times> reduce(times.begin(), times.begin() + half),
      both(times.begin() + half, times.end());
  if (world.rank() != 0) return;
  print_row(size.bytes, "all-reduce", rivals, reduce);
  print_row(size.bytes, "r-s + a-g", rivals, both);
  judge(size.bytes, rivals, reduce, verdicts);
}

void print_heading(int ranks, const Rivals& rivals) {
  fmt::print("Milliseconds on {} ranks of this host, in turns in the same processes\n", ranks);
  fmt::print("{:>9}  {:<15}", "bytes", "operation");
  for (const auto& rival : rivals) fmt::print("{:>14}{:>9}", rival->name() + " min", "p50");
  for (std::size_t i = 1; i < rivals.size(); ++i)
    fmt::print("{:>16}", rivals[i]->name() + "/local");
  fmt::print("\n");
}

// The same workers on another fabric, as if each had a host of its own.
std::optional<World> join_again(const std::string& fabric, const std::string& folder) {
  if (!(fabric == "tcp" ? why_no_tcp() : why_no_mpi()).empty()) return std::nullopt;
  const char* rendezvous = std::getenv(kRendezvous);
  return World::join({.fabric = fabric,
                      .rendezvous = fabric == "tcp" && rendezvous ? rendezvous : "",
                      .secret_file = fabric == "tcp" ? folder + "/secret" : "",
                      .encrypt = false,
                      .two_levels = false});
}

int run_rank(const std::string& folder) {
  // MPI first: it expects to be started before anything else talks to its launcher.
  auto mpi = make_mpi();
  World world = World::join();
  std::optional<World> over_mpi = mpi ? join_again("mpi", folder) : std::nullopt;
  std::optional<World> over_tcp = join_again("tcp", folder);
  Rivals rivals;
  rivals.push_back(std::make_unique<Skein>(world));
  for (std::optional<World>* other : {&over_mpi, &over_tcp})
    if (*other) rivals.push_back(std::make_unique<Skein>(**other));
  const auto join = [&](std::unique_ptr<Rival> rival, const char* missing) {
    if (rival)
      rivals.push_back(std::move(rival));
    else if (world.rank() == 0)
      fmt::print("{} is not compared: this program was built without it\n", missing);
  };
  join(make_gloo(world.rank(), world.size(), folder), "Gloo (libgloo-dev)");
  const bool raw = mpi != nullptr;
  join(std::move(mpi), "MPI (libopenmpi-dev)");
  if (world.rank() == 0) print_heading(world.size(), rivals);
  std::vector<Verdict> verdicts;
  for (const Size& size : kSizes) compare(world, rivals, size, verdicts);
  for (const Verdict& verdict : verdicts)
    fmt::print("{} {}\n", verdict.text, verdict.ok ? "ok" : "MISSED");
  world.barrier();
  if (raw) mpi = std::move(rivals.back());  // it ends MPI, which the worlds must not outlive
  return 0;
}

// A folder for the ranks to meet in, gone when they have ended.
class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "skein-bench-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr)
      throw Error(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Under mpirun where there is one, so that all three can run in the same processes.
int start(int ranks) {
  const Folder folder;
  LaunchOptions launch;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  if (mpi_launcher().empty()) {
    launch.workers = ranks;
    launch.argv = {self};
  } else {
    // Unbound: Gloo has a thread of its own, which must not share a core with the rank.
    launch.argv = {"env",
                   "-u",
                   "SKEIN_RANK",
                   "-u",
                   "SKEIN_SIZE",
                   "-u",
                   "SKEIN_RUN",
                   "-u",
                   "SKEIN_BOARD",
                   mpi_launcher(),
                   "-n",
                   std::to_string(ranks),
                   "--allow-run-as-root",
                   "--oversubscribe",
                   "--bind-to",
                   "none",
                   self};
  }
  launch.extra_env[kFolder] = folder.path();
  const HeldPort port("127.0.0.1");
  launch.extra_env[kRendezvous] = fmt::format("127.0.0.1:{}", port.port());
  std::ofstream(folder.path() + "/secret") << fresh_secret();
  std::filesystem::permissions(folder.path() + "/secret", std::filesystem::perms::owner_read);
  return skein::launch(launch);
}

int read_ranks(int argc, char** argv) {
  if (argc == 1) return 2;
  int ranks = 0;
  const char* end = argv[1] + std::strlen(argv[1]);
  const auto [rest, code] = std::from_chars(argv[1], end, ranks);
  if (argc > 2 || code != std::errc() || rest != end || ranks < 2 || ranks > 64)
    throw ConfigError(
        fmt::format("'{}': expected nothing or the number of ranks, from 2 to 64", argv[1]));
  return ranks;
}

}  // namespace
}  // namespace skein::bench

int main(int argc, char** argv) try {
  const int ranks = skein::bench::read_ranks(argc, argv);
  const char* folder = std::getenv(skein::bench::kFolder);
  return folder != nullptr ? skein::bench::run_rank(folder) : skein::bench::start(ranks);
} catch (const skein::ConfigError& error) {
  fmt::print(stderr, "bench_fabric: {}\n", error.what());
  return 2;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_fabric: {}\n", error.what());
  return 1;
}

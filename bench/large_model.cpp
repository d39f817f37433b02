// What a large model takes of a host's memory, beside the planes that its strategy needs:
//   bench_large_model [MILLIONS of parameters] [STRATEGY[:KEY=VALUE]…]
// Two workers, plain SGD, four layers; two steps each, without a gradient's computation.
// Without arguments: 100 and allreduce, dear, abs, abs:lookahead=none, local, lasgd, acid.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "optimize/sgd.h"
#include "runtime/world_impl.h"
#include "skein/error.h"
#include "strategy/driver.h"
#include "strategy/registry.h"

namespace {

using namespace skein;
using namespace std::chrono_literals;

constexpr int kWorkers = 2;
constexpr std::size_t kLayers = 4;

// Planes beyond model and gradients; plain SGD has no state.
const std::map<std::string, int> kBudgets{
    {"allreduce", 0}, {"dear", 0}, {"abs", 2}, {"abs:lookahead=none", 1}, {"lasgd", 2}, {"acid", 3},
};
constexpr double kSmallThings = 0.05;  // of a plane: what is there beside planes

struct Trained {
  double seconds = 0;  // of the second step
  std::size_t planes = 0;
};

// The part of `STRATEGY:KEY=VALUE` before the colon, and the option after it.
std::pair<std::string, StrategyOptions> parse(const std::string& text) {
  const std::size_t colon = text.find(':'), equals = text.find('=', colon);
  if (colon == std::string::npos) return {text, {}};
  if (equals == std::string::npos)
    throw ConfigError(fmt::format("'{}': expected STRATEGY or STRATEGY:KEY=VALUE", text));
  return {text.substr(0, colon),
          {{text.substr(colon + 1, equals - colon - 1), text.substr(equals + 1)}}};
}

// Computes on the host, beside the courier.
class HostProgram final : public Program {
 public:
  explicit HostProgram(Courier& courier) : courier_(courier) {}
  void post(std::function<void()> action) override { courier_.post(std::move(action)); }
  void with_loop(const std::function<void()>& action) override { courier_.with_loop(action); }

 private:
  Courier& courier_;
};

Trained train(Fabric& fabric, Courier& courier, const std::string& name, std::size_t parameters) {
  const std::vector<Arena::Parameter> layers(kLayers, {"layer", parameters / kLayers});
  Arena arena(layers, [&](std::size_t count) { return fabric.allocate(count); });
  Sgd optimizer(arena.size(), SgdOptions{});
  WorkerTime time;
  Worker worker(fabric, arena, optimizer, LearningRate(0.1, Schedule{}), time, 60s, 0);
  const auto [kind, options] = parse(name);
  const auto strategy = make_strategy(kind, options, worker);
  HostProgram program(courier);
  Driver driver(worker, *strategy, time, program);
  fill(arena.parameters(), 1);
  Trained trained;
  for (int step = 0; step < 2; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    driver.expect(8);
    for (int bucket = 0; bucket < strategy->plan().count(); ++bucket)
      courier.wait(driver.need(bucket));
    courier.wait(driver.begin());
    for (int slot = static_cast<int>(kLayers); slot-- > 0;) {
      fill(arena.gradients().at(arena.slots()[static_cast<std::size_t>(slot)].range), 1);
      driver.gradient(slot);
    }
    courier.wait(driver.end(8));
    courier.wait(driver.flush());
    trained.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  const float value = arena.parameters().host()[parameters / 2];
  if (!(value < 1)) throw Error("the model did not move");
  trained.planes = 2 + arena.extra_planes();
  return trained;
}

// Tells `out` what became of rank 0.
int work(int rank, const std::string& name, std::size_t parameters, int out) try {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(kWorkers).c_str(), 1);
  ::setenv("MASTER_ADDR", "localhost", 1);
  ::setenv("MASTER_PORT", std::to_string(1024 + ::getppid() % 60000).c_str(), 1);
  World world = World::join();
  const Trained trained = train(world.impl().fabric(), world.impl().courier(), name, parameters);
  world.barrier();
  if (rank == 0 && ::write(out, &trained, sizeof trained) != sizeof trained) return 1;
  return 0;
} catch (const std::exception& error) {
  fmt::print("{}, rank {}: {}\n", name, rank, error.what());
  return 2;
}

// Bytes of the shared files of a run, as one of its workers has them open.
double shared_bytes(pid_t worker) {
  double bytes = 0;
  std::error_code none;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", worker), none)) {
    const auto link = std::filesystem::read_symlink(entry.path(), none);
    struct stat status {};
    if (!none && link.string().starts_with("/memfd:skein") &&
        ::stat(entry.path().c_str(), &status) == 0)
      bytes += static_cast<double>(status.st_blocks) * 512;
  }
  return bytes;
}

double private_bytes(pid_t worker) {
  std::ifstream status(fmt::format("/proc/{}/status", worker));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::atof(line.c_str() + 8) * 1024;
  return 0;
}

// Planes beyond model and gradients: those that were taken, even if nothing was written there yet,
// or more if more memory is in use. Nothing if it failed.
std::optional<double> measure(const std::string& name, std::size_t parameters) {
  int ends[2];
  if (::pipe(ends) != 0) throw Error("no pipe");
  std::vector<pid_t> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.push_back(::fork());
    if (workers.back() == 0) ::_exit(work(rank, name, parameters, ends[1]));
  }
  ::close(ends[1]);
  double shared = 0, own = 0;
  bool failed = false;
  for (std::size_t running = workers.size(); running > 0;) {
    shared = std::max(shared, shared_bytes(workers[0]));
    double sum = 0;
    for (const pid_t worker : workers) sum += private_bytes(worker);
    own = std::max(own, sum);
    std::this_thread::sleep_for(5ms);
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0; --running)
      failed = failed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  Trained trained;
  const bool told = ::read(ends[0], &trained, sizeof trained) == sizeof trained;
  ::close(ends[0]);
  if (failed || !told) {
    fmt::print("{:<20}{:>8}\n", name, "failed");
    return std::nullopt;
  }
  const double planes = static_cast<double>(trained.planes * kWorkers * parameters) * sizeof(float);
  fmt::print("{:<20}{:>8}{:>14.2f}{:>14.2f}{:>14.2f}{:>10.3f}{:>12.2f}\n", name, trained.planes,
             planes / 1e9, shared / 1e9, own / 1e9, (shared + own) / planes, trained.seconds);
  return std::max(1.0, (shared + own) / planes) * static_cast<double>(trained.planes) - 2;
}

void judge(const std::string& name, double planes) {
  const auto budget = kBudgets.find(name);
  if (budget == kBudgets.end()) return;
  const bool ok = planes <= budget->second + kSmallThings;
  fmt::print("{}, planes beyond model and gradients: budget <= {}: {:.2f} {}\n", name,
             budget->second, planes, ok ? "ok" : "MISSED");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t millions = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 100;
  std::vector<std::string> strategies(argv + std::min(argc, 2), argv + argc);
  if (strategies.empty())
    strategies = {"allreduce", "dear", "abs", "abs:lookahead=none", "local", "lasgd", "acid"};
  if (millions == 0) {
    fmt::print(stderr,
               "bench_large_model [MILLIONS] [STRATEGY[:KEY=VALUE]…]: expected a number above 0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  fmt::print("{} M parameters, {} workers\n", millions, kWorkers);
  fmt::print("{:<20}{:>8}{:>14}{:>14}{:>14}{:>10}{:>12}\n", "strategy", "planes", "together GB",
             "shared GB", "private GB", "ratio", "step s");
  std::vector<std::optional<double>> planes;
  for (const std::string& name : strategies)
    planes.push_back(measure(name, millions * 1000 * 1000));
  for (std::size_t i = 0; i < strategies.size(); ++i)
    if (planes[i]) judge(strategies[i], *planes[i]);
}

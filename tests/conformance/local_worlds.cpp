// The local fabric, one forked process per rank: as it is, with emulated links, and on a device.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <optional>

#include "conformance/harness.h"
#include "fabric/local/local_fabric.h"
#include "runtime/courier.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

// Lives in memory that parent and children share.
struct Report {
  bool finished, ok, io_error;
  int peer;
  char error[400];
};

void run_rank(const Body& body, const LocalOptions& options, bool on_device, Report& report) {
  try {
    const SteadyClock clock;
    std::optional<toy::ToyQueue> queue;
    if (on_device) queue.emplace(static_cast<std::uint64_t>(options.rank));
    Loop loop(clock);
    if (queue) loop.use(&*queue);
    LocalFabric fabric(loop, options);
    std::exception_ptr error;
    const auto whole = [&]() -> Task<> { co_await body(fabric); };
    {
      Courier courier(loop, fabric.events());
      try {
        courier.wait(whole());
      } catch (...) {
        error = std::current_exception();
      }
    }
    loop.abandon_jobs();
    if (error) std::rethrow_exception(error);
    report.ok = !testing::Test::HasFailure();
  } catch (const IoError& error) {
    report.io_error = true;
    report.peer = error.peer();
    std::strncpy(report.error, error.what(), sizeof(report.error) - 1);
  } catch (const std::exception& error) {
    std::strncpy(report.error, error.what(), sizeof(report.error) - 1);
  }
  report.finished = true;
}

std::vector<Outcome> run_local(int size, const Body& body, const LinkEmulation& link,
                               bool on_device = false) {
  static std::atomic<int> runs{0};
  const auto ranks = static_cast<std::size_t>(size);
  void* memory = ::mmap(nullptr, sizeof(Report) * ranks, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* reports = static_cast<Report*>(memory);
  const std::string run_id =
      "conformance-" + std::to_string(::getpid()) + "-" + std::to_string(runs++);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      run_rank(body, {run_id, rank, size, 20s, link}, on_device, reports[rank]);
      std::fflush(nullptr);
      ::_exit(reports[rank].ok ? 0 : 1);
    }
    children.push_back(child);
  }
  std::vector<Outcome> outcomes(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    int status = 0;
    ::waitpid(children[r], &status, 0);
    outcomes[r] = {reports[r].ok, reports[r].error, reports[r].io_error, reports[r].peer,
                   WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    if (WIFEXITED(status) && !reports[r].finished) outcomes[r].error = "the process ended early";
  }
  ::munmap(memory, sizeof(Report) * ranks);
  return outcomes;
}

Task<> die(Fabric&) {
  ::kill(::getpid(), SIGKILL);
  co_return;
}

}  // namespace

std::vector<World> worlds() {
  const LinkEmulation link{1e9, 50us};
  std::vector<World> all{
      {"local", [](int size, const Body& body) { return run_local(size, body, {}); }, die},
      {"local_link", [link](int size, const Body& body) { return run_local(size, body, link); },
       die},
      {"device", [](int size, const Body& body) { return run_local(size, body, {}, true); }, die}};
  for (World& world : sim_worlds()) all.push_back(std::move(world));
  return all;
}

}  // namespace skein::conformance

#include "conformance/forked.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "runtime/courier.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

// Lives in memory that parent and children share.
struct Report {
  bool finished, ok, io_error;
  int peer;
  char error[400];
};

void run_rank(const Body& body, const MakeFabric& make, const PrepareQueue& prepare, int rank,
              Report& report) {
  try {
    const SteadyClock clock;
    std::optional<toy::ToyQueue> queue;
    if (prepare) prepare(queue.emplace(static_cast<std::uint64_t>(rank)), rank);
    Loop loop(clock);
    if (queue) loop.use(&*queue);
    const std::unique_ptr<Fabric> fabric = make(loop, rank);
    std::exception_ptr error;
    const auto whole = [&]() -> Task<> {
      co_await fabric->meet_on_device(loop.now() + std::chrono::seconds(20));
      co_await body(*fabric);
    };
    {
      Courier courier(loop, fabric->events());
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

}  // namespace

std::vector<Outcome> run_forked(int size, const Body& body, const MakeFabric& make,
                                const PrepareQueue& prepare) {
  const auto ranks = static_cast<std::size_t>(size);
  void* memory = ::mmap(nullptr, sizeof(Report) * ranks, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* reports = static_cast<Report*>(memory);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      run_rank(body, make, prepare, rank, reports[rank]);
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

}  // namespace skein::conformance

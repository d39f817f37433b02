#include "conformance/forked.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace skein::conformance {

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
    outcomes[r] = reports[r].outcome(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
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

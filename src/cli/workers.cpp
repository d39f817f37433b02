#include "cli/workers.h"

#include <filesystem>

#include "observe/board.h"
#include "skein/error.h"

namespace skein {

LaunchOptions launch_of_self(const Invocation& invocation, int workers, int threads) {
  LaunchOptions launch;
  launch.workers = workers;
  launch.argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
  launch.argv.insert(launch.argv.end(), invocation.arguments.begin(), invocation.arguments.end());
  if (threads > 1)
    for (const char* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
      launch.extra_env[name] = std::to_string(threads);
  return launch;
}

int run_as_worker(const Placement& placement, const std::function<int()>& body) {
  auto board = Board::inherit(process_environment, placement.rank);
  try {
    return body();
  } catch (const ConfigError& error) {
    if (board) board->fail(error.what());
    throw;
  } catch (const std::exception& error) {
    const auto* lost = dynamic_cast<const IoError*>(&error);
    if (board) board->fail(error.what(), lost != nullptr ? lost->peer() : -1);
    // The launcher prints one block about the whole run; rank 0 shares its terminal.
    if (board && placement.rank == 0) return 1;
    throw;
  }
}

}  // namespace skein

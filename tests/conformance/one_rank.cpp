#include "conformance/one_rank.h"

#include <cstring>
#include <optional>

#include "runtime/courier.h"
#include "skein/error.h"

namespace skein::conformance {

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
      co_await fabric->meet_on_device(loop.now() + std::chrono::seconds(120));
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

}  // namespace skein::conformance

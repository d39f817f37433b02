// The simulated fabric: all ranks in this process, on virtual time.
#include <gtest/gtest.h>
#include <signal.h>

#include "conformance/harness.h"
#include "sim/sim_fabric.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

Outcome outcome_of(const Job& job) {
  Outcome outcome;
  try {
    if (!job.done()) throw Error("never ended");
    job.rethrow();
    outcome.ok = true;
  } catch (const IoError& error) {
    outcome.error = error.what();
    outcome.io_error = true;
    outcome.peer = error.peer();
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

// As a real worker would: who fails or ends tells its peers.
Task<> run_rank(Fabric& fabric, const Body& body) {
  try {
    co_await body(fabric);
  } catch (const std::exception& error) {
    fabric.fail(error.what());
    throw;
  }
}

sim::Cluster* running_cluster = nullptr;  // that of the test which runs

std::vector<Outcome> run_sim(int size, const Body& body, const sim::Network& network) {
  sim::Cluster cluster(size, network, 1);
  running_cluster = &cluster;
  std::vector<Job> jobs;
  for (int rank = 0; rank < size; ++rank)
    jobs.push_back(cluster.spawn(rank, run_rank(cluster.fabric(rank), body)));
  cluster.engine().run([] { return false; }, {});
  std::vector<Outcome> outcomes;
  for (int rank = 0; rank < size; ++rank)
    outcomes.push_back(cluster.running(rank) ? outcome_of(jobs[static_cast<std::size_t>(rank)])
                                             : Outcome{false, "killed", false, -1, SIGKILL});
  return outcomes;
}

Task<> die(Fabric& fabric) {
  sim::Cluster& cluster = *running_cluster;
  const int rank = fabric.rank();
  cluster.engine().schedule(cluster.engine().now(),
                            [&cluster, rank] { cluster.end_process(rank, "which died"); });
  co_await fabric.loop().sleep_until(kNever - std::chrono::nanoseconds(1));
}

}  // namespace

World sim_world(const std::string& network) {
  return {"sim",
          [parsed = sim::parse_network(network)](int size, const Body& body) {
            return run_sim(size, body, parsed);
          },
          die};
}

std::vector<World> sim_worlds() {
  const auto flat = sim::parse_network("10gbe");
  auto shared = sim::parse_network("1gbe:jitter=1ms,chunk=4KiB");
  shared.workers_per_host = 2;
  const auto world = [](const sim::Network& network) {
    return [network](int size, const Body& body) { return run_sim(size, body, network); };
  };
  return {{"sim", world(flat), die}, {"sim_shared", world(shared), die}};
}

}  // namespace skein::conformance

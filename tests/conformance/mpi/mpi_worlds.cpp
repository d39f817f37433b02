// The mpi fabric. All ranks of an mpirun run all cases, each at the same time as the others: a case
// on N ranks runs on the first N, and the others wait. What each rank came to is then known to all.
#include <gtest/gtest.h>
#include <mpi.h>

#include <thread>

#include "conformance/one_rank.h"
#include "fabric/alone.h"
#include "fabric/mpi/mpi_fabric.h"
#include "fabric/mpi/session.h"
#include "skein/error.h"

namespace skein::conformance {
namespace {

using namespace std::chrono_literals;

int own_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

MPI_Comm first_ranks(int size) {
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  int range[1][3] = {{0, size - 1, 1}};
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_range_incl(all, 1, range, &some);
  MPI_Comm out = MPI_COMM_NULL;
  MPI_Comm_create_group(MPI_COMM_WORLD, some, 0, &out);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  return out;
}

// Without taking a core from those who have something to do.
std::vector<Report> gather(const Report& mine) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Report> all(static_cast<std::size_t>(ranks));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, MPI_COMM_WORLD,
                 &request);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return all;
    std::this_thread::sleep_for(1ms);
  }
}

std::vector<Outcome> run_mpi(int size, const Body& body, const PrepareQueue& prepare) {
  const int rank = own_rank();
  Report mine{};
  const auto make = [&](Loop& loop, int) -> std::unique_ptr<Fabric> {
    if (size == 1) return std::make_unique<AloneFabric>(loop);
    return std::make_unique<mpi::MpiFabric>(loop, first_ranks(size), 120s, 1ms);
  };
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (size > ranks) throw Error("a case of more ranks than mpirun has started");
  if (rank < size) run_rank(body, make, prepare, rank, mine);
  const std::vector<Report> reports = gather(mine);
  // All have left: nothing may stay behind.
  for (int i = 0; !mpi::Session::of_this_process().tidy(); ++i) {
    if (i == 100000) {
      ADD_FAILURE() << "a fabric of " << size << " ranks has not come to its end";
      break;
    }
    std::this_thread::sleep_for(1ms);
  }
  std::vector<Outcome> outcomes;
  for (int r = 0; r < size; ++r) outcomes.push_back(reports[static_cast<std::size_t>(r)].outcome());
  return outcomes;
}

}  // namespace

std::vector<World> worlds() {
  const auto world = [](const PrepareQueue& prepare) {
    return [prepare](int size, const Body& body) { return run_mpi(size, body, prepare); };
  };
  return {{"mpi", world(nullptr), nullptr},
          {"mpi_device", world([](toy::ToyQueue& queue, int rank) { as_it_is(queue, rank); }),
           nullptr}};
}

}  // namespace skein::conformance

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
  testing::InitGoogleTest(&argc, argv);
  skein::mpi::Session::of_this_process().start(std::chrono::seconds(120));
  if (skein::conformance::own_rank() > 0) testing::GTEST_FLAG(brief) = true;
  int code = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) code = 1;
  MPI_Finalize();
  return code;
}

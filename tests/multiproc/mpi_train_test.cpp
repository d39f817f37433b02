// `skein train --fabric mpi` under mpirun: how it trains, and how it ends when a worker does not go
// on.
#include <signal.h>

#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

// As root, and with more workers than cores.
const Process::Environment kAllow{{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                  {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
                                  {"OMPI_MCA_hwloc_base_binding_policy", "none"}};

const Words kJob{"--model", "mlp", "--set", "model.width=64", "--samples", "192"};
const Words kLongJob{"--model",    "mlp",        "--set", "model.width=64", "--samples",
                     "1000000000", "--deadline", "20s",   "--fabric",       "mpi"};

// Whoever inherits it may take its time to notice.
bool ended(pid_t process) {
  const std::string state = contents("/proc/" + std::to_string(process) + "/stat");
  return state.empty() || state.find(") Z ") != std::string::npos;
}

class MpiTrain : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(SKEIN_MPIEXEC).empty()) GTEST_SKIP() << "no mpi fabric in this build";
  }

  static Words under_mpirun(int workers, const Words& options) {
    return with({SKEIN_MPIEXEC, "-n", std::to_string(workers)}, command(options));
  }

  // What each worker says when it has made its first steps.
  bool at_work(const Process& run, std::size_t workers) const {
    return eventually([&] {
      return children_of(run).size() >= workers && contents(folder_ / "metrics.jsonl").size() > 0;
    });
  }

  const Folder folder_;
};

TEST_F(MpiTrain, HasTheBitsOfARunOnSharedMemoryAndDearThoseOfAllreduce) {
  train_ok(with(kJob, {"--workers", "3", "--out", folder_ / "local"}));
  for (const char* strategy : {"allreduce", "dear"}) {
    const Words options{
        "--fabric",        "mpi", "--strategy", strategy, "--set", "strategy.fusion=32KB", "--out",
        folder_ / strategy};
    const Finished end = Process(under_mpirun(3, with(kJob, options)), kAllow).wait();
    ASSERT_EQ(end.code, 0) << strategy << ": " << end.err;
  }
  const std::string model = contents(folder_ / "local/model.safetensors");
  EXPECT_GT(model.size(), 1000u);
  EXPECT_TRUE(contents(folder_ / "allreduce/model.safetensors") == model);
  EXPECT_TRUE(contents(folder_ / "dear/model.safetensors") == model);
}

TEST_F(MpiTrain, AcidTrains) {
  const Words options{"--fabric", "mpi", "--strategy", "acid", "--out", folder_ / "acid"};
  const Finished end = Process(under_mpirun(4, with(kJob, options)), kAllow).wait();
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_GT(contents(folder_ / "acid/model.safetensors").size(), 1000u);
}

// The launcher ends the others, so nobody is left to say anything.
TEST_F(MpiTrain, EndsWhenAWorkerIsKilled) {
  Process run(under_mpirun(3, with(kLongJob, {"--log-every", "1", "--out", folder_.path()})),
              kAllow);
  ASSERT_TRUE(at_work(run, 3));
  const auto workers = children_of(run);
  ::kill(workers.back(), SIGKILL);
  const Finished end = run.wait();
  EXPECT_NE(end.code, 0);
  for (const pid_t worker : workers)
    EXPECT_TRUE(eventually([&] { return ended(worker); })) << "a worker is left";
}

// Nobody waits in MPI_Finalize for the one that stands still, and the message is ours.
TEST_F(MpiTrain, EndsWithTheReasonWhenAWorkerStandsStill) {
  Process run(under_mpirun(3, with(kLongJob, {"--log-every", "1", "--out", folder_.path()})),
              kAllow);
  ASSERT_TRUE(at_work(run, 3));
  const auto workers = children_of(run);
  ::kill(workers.back(), SIGSTOP);
  const Finished end = run.wait();
  EXPECT_EQ(end.code, 1) << end.err;
  EXPECT_NE(end.err.find("has been silent for too long"), std::string::npos) << end.err;
  for (const pid_t worker : workers)
    EXPECT_TRUE(eventually([&] { return ended(worker); })) << "a worker is left";
}

TEST_F(MpiTrain, NamesBothWhenTheLauncherIsOfAnotherMpi) {
  const std::string other = SKEIN_OTHER_MPIEXEC;
  if (other.empty()) GTEST_SKIP() << "no mpirun of another MPI here (apt install mpich)";
  const Finished end =
      Process(with({other, "-n", "2"}, command(with(kJob, {"--fabric", "mpi"})))).wait();
  EXPECT_EQ(end.code, 2) << end.err;
  for (const char* part : {"Open MPI", "MPICH", "expected"})
    EXPECT_NE(end.err.find(part), std::string::npos) << part << "\nin: " << end.err;
}

TEST_F(MpiTrain, WithoutMpirunShowsHowToStartIt) {
  refused({"--fabric", "mpi", "--workers", "2"}, {"--fabric mpi", "mpirun -n 2 skein"});
  refused({"--fabric", "mpi", "--hosts", "a,b"}, {"--fabric mpi", "expected --fabric tcp"});
}

}  // namespace
}  // namespace skein::testing

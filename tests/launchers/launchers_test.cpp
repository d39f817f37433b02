// Workers under launchers of others, whose environment is what those programs really set.
#include <fmt/format.h>

#include <filesystem>

#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

bool there(const std::string& program) {
  return Process({"sh", "-c", "command -v " + program}).wait().code == 0;
}

// That of PyTorch's own packages, which `make TORCH=pip` installs, or one that is in the search
// path.
std::string find_torchrun() {
  for (const std::string& program :
       {std::string(kSource) + "/build-pip/venv/bin/torchrun", std::string("torchrun")})
    if (there(program)) return program;
  return "";
}

void expect_three_workers(const Words& command, const std::string& launcher,
                          const Process::Environment& environment = {}) {
  const Finished end = Process(command, environment).wait();
  ASSERT_EQ(end.code, 0) << end.err << end.out;
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(count(end.out,
                    fmt::format("{} rank {} of 3, local {} of 3, sum 6\n", launcher, rank, rank)),
              1)
        << end.out;
}

TEST(Launchers, OpenMpi) {
  if (!there("mpirun.openmpi"))
    GTEST_SKIP() << "there is no mpirun.openmpi: apt install openmpi-bin";
  expect_three_workers({"mpirun.openmpi", "--oversubscribe", "-n", "3", SKEIN_PLACED, "local"},
                       "openmpi",
                       {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
}

TEST(Launchers, MpichsHydra) {
  if (!there("mpirun.mpich")) GTEST_SKIP() << "there is no mpirun.mpich: apt install mpich";
  expect_three_workers({"mpirun.mpich", "-n", "3", SKEIN_PLACED, "local"}, "mpich");
}

TEST(Launchers, TorchrunWhichSaysWhereToMeet) {
  const std::string torchrun = find_torchrun();
  if (torchrun.empty())
    GTEST_SKIP() << "there is no torchrun: make test-torch TORCH=pip installs one";
  const Words alone{torchrun, "--standalone", "--no_python", "--nproc_per_node"};
  auto with = [&](Words more) {
    more.insert(more.begin(), alone.begin(), alone.end());
    return more;
  };
  // Debian 12 has one that its own Python is too new for.
  if (torchrun == "torchrun" && Process(with({"1", "true"})).wait().code != 0)
    GTEST_SKIP() << "this machine's torchrun starts nothing; make test-torch TORCH=pip installs "
                    "one that does";
  const Folder folder;
  std::ofstream(folder / "secret") << "what the workers of this test know";
  std::filesystem::permissions(folder / "secret", std::filesystem::perms::owner_read);
  expect_three_workers(with({"3", SKEIN_PLACED, "tcp"}), "torchrun",
                       {{"SKEIN_SECRET_FILE", folder / "secret"}});
}

}  // namespace
}  // namespace skein::testing

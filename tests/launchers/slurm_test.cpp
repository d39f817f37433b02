// Workers under Slurm: a whole cluster of it on this machine, which lasts as long as a test.
#include <fmt/format.h>

#include <filesystem>

#include "multiproc/paths.h"
#include "multiproc/train_command.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

class Slurm : public ::testing::Test {
 protected:
  // Runs a script of tests/slurm on a cluster of two nodes.
  Finished on_cluster(const std::string& script, const Words& arguments) {
    const std::string scripts = std::string(kSource) + "/tests/slurm/";
    const std::string programs = std::filesystem::path(kSkein).parent_path().string();
    return Process(with({scripts + "cluster.sh", "2", folder / "cluster", "--", scripts + script},
                        arguments),
                   {{"HOME", folder.path()},  // which all nodes share
                    {"PATH", programs + ":/usr/sbin:/usr/bin:/sbin:/bin"}})
        .wait();
  }

  std::string daemon_logs() const {
    std::string all;
    for (const char* name : {"slurmctld", "slurmd-node1", "slurmd-node2"})
      all += contents(folder / "cluster/" + std::string(name) + ".log");
    return all;
  }

  const Folder folder;
};

// What follows a line "== NAME", up to the next.
std::string section(const std::string& out, const std::string& name) {
  const std::size_t begin = out.find("== " + name + "\n");
  if (begin == std::string::npos) return "no section " + name;
  const std::size_t text = out.find('\n', begin) + 1;
  return out.substr(text, out.find("== ", text) - text);
}

// Two workers on each of two nodes.
void expect_two_by_two(const std::string& out, const std::string& name,
                       const std::string& launcher) {
  const std::string text = section(out, name);
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_EQ(count(text, fmt::format("{} rank {} of 4, local {} of 2, sum 10\n", launcher, rank,
                                      rank % 2)),
              1)
        << name << "\n"
        << text;
}

TEST_F(Slurm, PlacesWorkersBySrunMpirunAndBoth) {
  const Finished end = on_cluster("placements.sh", {SKEIN_PLACED, folder.path()});
  if (end.code == 77) GTEST_SKIP() << end.out;
  ASSERT_EQ(end.code, 0) << end.out << end.err << daemon_logs();
  for (const char* mpi : {"none", "pmi2", "pmix"})
    expect_two_by_two(end.out, fmt::format("srun --mpi={}", mpi), "slurm");
  EXPECT_EQ(count(section(end.out, "two steps at once"), "of 2, local 0 of 1, sum 3\n"), 4)
      << end.out;
  EXPECT_EQ(count(section(end.out, "one node"), ", sum 3\n"), 2) << end.out;
  EXPECT_EQ(section(end.out, "batch"), "alone, sum 1\n");
  EXPECT_EQ(section(end.out, "one task"), "alone, sum 1\n");
  for (const auto& [program, launcher] :
       {std::pair("mpirun.openmpi", "openmpi"), std::pair("mpirun.mpich", "mpich")}) {
    if (section(end.out, program) == "missing\n") {
      std::cout << "not tested: there is no " << program << "\n";
      continue;
    }
    expect_two_by_two(end.out, program, launcher);
    EXPECT_EQ(count(section(end.out, fmt::format("srun {}", program)),
                    fmt::format("{} rank 1 of 2, local 1 of 2, sum 3\n", launcher)),
              1)
        << end.out;
  }
}

// The job leaves at a warning and puts itself back into the queue, is cancelled, put back by the
// user, and ends as if nothing had happened.
TEST_F(Slurm, AJobThatIsWarnedCancelledAndRequeuedFinishes) {
  const Words job{"--strategy", "dear",          "--model", "mlp",   "--batch",
                  "8",          "--samples",     "1920",    "--set", "data.train=640",
                  "--set",      "data.test=40",  "--seed",  "3",     "--quiet",
                  "--set",      "model.width=64"};
  const Finished end =
      on_cluster("cancel_and_requeue.sh",
                 with({folder / "out", std::string(kSource) + "/examples/slurm/tcp.sh"},
                      with(job, {"--emulate-step", "40ms", "--json", folder / "run.json"})));
  if (end.code == 77) GTEST_SKIP() << end.out;
  ASSERT_EQ(end.code, 0) << end.out << end.err << daemon_logs();
  const Json run = json_of(folder / "run.json");
  EXPECT_TRUE(run["finished"].get<bool>());
  EXPECT_EQ(run["fabric"], "tcp");
  std::vector<std::int64_t> starts;
  for (const Json& line : lines_of(folder / "out/metrics.jsonl", "run"))
    starts.push_back(line["samples"].get<std::int64_t>());
  ASSERT_EQ(starts.size(), 3u) << end.out;
  EXPECT_EQ(starts[0], 0);
  EXPECT_GT(starts[1], starts[0]);
  EXPECT_GT(starts[2], starts[1]);
  EXPECT_LT(starts[2], 1920);
  EXPECT_EQ(std::ssize(lines_of(folder / "out/metrics.jsonl", "step")), 120)
      << "what was done before a signal was saved";
  train_ok(with(job, {"--workers", "2", "--out", folder / "whole"}));
  EXPECT_TRUE(same_bytes(folder / "whole/model.safetensors", folder / "out/model.safetensors"));
}

}  // namespace
}  // namespace skein::testing

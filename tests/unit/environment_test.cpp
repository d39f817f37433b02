#include "launch/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "skein/error.h"

namespace skein {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Placement> placed(const Variables& variables, pid_t parent = 77) {
  const auto getenv = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return detect(getenv, parent);
}

std::string refusal(const Variables& variables) {
  try {
    placed(variables);
    return "accepted";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

void expect_place(const std::optional<Placement>& placement, const std::string& launcher, int rank,
                  int size, int local_rank, int local_size) {
  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->launcher, launcher);
  EXPECT_EQ(placement->rank, rank);
  EXPECT_EQ(placement->size, size);
  EXPECT_EQ(placement->local_rank, local_rank);
  EXPECT_EQ(placement->local_size, local_size);
  EXPECT_FALSE(placement->run_id.empty());
}

const Variables kSkein{{"SKEIN_RANK", "2"}, {"SKEIN_SIZE", "4"}, {"SKEIN_RUN", "c0ffee"}};
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"}};
// As Open MPI 4.1 and MPICH 4.0 set them.
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMIX_NAMESPACE", "1882062849"},    {"PMIX_RANK", "1"}};
const Variables kMpich{
    {"PMI_RANK", "3"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "3"}};
const Variables kSlurm{{"SLURM_PROCID", "6"},         {"SLURM_NTASKS", "7"},
                       {"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_LOCALID", "2"},
                       {"SLURM_NODEID", "1"},         {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                       {"SLURM_JOB_ID", "123"},       {"SLURM_STEP_ID", "0"}};

TEST(Environment, AloneWhenNobodyStartedUs) {
  EXPECT_FALSE(placed({}));
  EXPECT_FALSE(placed({{"PATH", "/bin"}, {"MASTER_ADDR", "node0"}, {"SKEIN_RANK", ""}}));
}

TEST(Environment, KnowsEveryLauncher) {
  expect_place(placed(kSkein), "skein", 2, 4, 2, 4);
  expect_place(placed(kTorchrun), "torchrun", 5, 8, 1, 4);
  expect_place(placed(kOpenMpi), "openmpi", 1, 2, 1, 2);
  expect_place(placed(kMpich), "mpich", 3, 6, 0, 3);
  expect_place(placed(kSlurm), "slurm", 6, 7, 2, 3);
}

TEST(Environment, InnerLauncherComesFirst) {
  Variables all;
  const std::pair<const Variables*, const char*> from_outer_to_inner[] = {{&kSlurm, "slurm"},
                                                                          {&kMpich, "mpich"},
                                                                          {&kOpenMpi, "openmpi"},
                                                                          {&kTorchrun, "torchrun"},
                                                                          {&kSkein, "skein"}};
  for (const auto& [variables, name] : from_outer_to_inner) {
    all.insert(variables->begin(), variables->end());
    ASSERT_TRUE(placed(all));
    EXPECT_EQ(placed(all)->launcher, name);
  }
}

TEST(Environment, RunIdIsOfTheRunNotOfTheRank) {
  EXPECT_EQ(placed(kSkein)->run_id, placed(with(kSkein, {{"SKEIN_RANK", "3"}}))->run_id);
  EXPECT_NE(placed(kSkein)->run_id, placed(with(kSkein, {{"SKEIN_RUN", "beef"}}))->run_id);
  EXPECT_EQ(placed(kTorchrun)->run_id, placed(with(kTorchrun, {{"RANK", "0"}}))->run_id);
  for (const auto& [name, value] :
       Variables{{"MASTER_PORT", "29501"}, {"TORCHELASTIC_RESTART_COUNT", "1"}})
    EXPECT_NE(placed(kTorchrun)->run_id, placed(with(kTorchrun, {{name, value}}))->run_id) << name;
  EXPECT_NE(placed(kOpenMpi)->run_id, placed(with(kOpenMpi, {{"PMIX_NAMESPACE", "9"}}))->run_id);
  EXPECT_EQ(placed(kMpich, 5)->run_id, placed(with(kMpich, {{"PMI_RANK", "1"}}), 5)->run_id);
  EXPECT_NE(placed(kMpich, 5)->run_id, placed(kMpich, 6)->run_id);
  EXPECT_NE(placed(kSlurm)->run_id, placed(with(kSlurm, {{"SLURM_STEP_ID", "1"}}))->run_id);
}

TEST(Environment, OlderOpenMpiNamesItsRunOtherwise) {
  const auto old = with(without(kOpenMpi, "PMIX_NAMESPACE"), {{"OMPI_MCA_ess_base_jobid", "42"}});
  EXPECT_EQ(placed(old)->run_id, "openmpi-42");
}

TEST(Environment, HalfSetIsAnErrorThatNamesWhatIsMissing) {
  const std::pair<const Variables*, std::vector<std::string>> required[] = {
      {&kSkein, {"SKEIN_RANK", "SKEIN_SIZE", "SKEIN_RUN"}},
      {&kTorchrun, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}},
      {&kOpenMpi, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"}},
      {&kMpich, {"PMI_RANK", "PMI_SIZE"}},
      {&kSlurm, {"SLURM_PROCID", "SLURM_JOB_ID"}}};
  for (const auto& [variables, names] : required)
    for (const std::string& name : names) {
      const std::string message = refusal(without(*variables, name));
      EXPECT_TRUE(mentions(message, "half set") && mentions(message, "but " + name + " is not"))
          << message;
    }
  EXPECT_EQ(refusal({{"RANK", "1"}}),
            "the environment of torchrun is half set: RANK=1 is set but WORLD_SIZE, MASTER_ADDR, "
            "MASTER_PORT are not; set all of them, or unset all to run alone");
}

TEST(Environment, RefusesWhatIsNotARank) {
  for (const char* bad : {"one", "-1", "1.5", "2 ", "99999999999999999999"}) {
    const std::string message = refusal(with(kTorchrun, {{"RANK", bad}}));
    EXPECT_TRUE(mentions(message, std::string("RANK=") + bad)) << message;
  }
  EXPECT_EQ(refusal(with(kSkein, {{"SKEIN_RANK", "4"}})),
            "SKEIN_RANK=4 and SKEIN_SIZE=4 in the environment of skein: the rank must be below the "
            "number of workers");
  EXPECT_TRUE(mentions(refusal(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "0"}})), "SIZE=0"));
  EXPECT_TRUE(mentions(refusal(with(kTorchrun, {{"LOCAL_RANK", "4"}})), "LOCAL_RANK=4"));
  EXPECT_TRUE(mentions(refusal(with(kMpich, {{"MPI_LOCALNRANKS", "7"}})), "MPI_LOCALNRANKS=7"));
  EXPECT_TRUE(mentions(refusal(with(kTorchrun, {{"MASTER_PORT", "x"}})), "MASTER_PORT=x"));
}

TEST(Environment, WithoutLocalVariablesAllAreOnThisHost) {
  auto torchrun = without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE");
  expect_place(placed(torchrun), "torchrun", 5, 8, 5, 8);
}

TEST(Environment, SlurmCountsTheTasksOfThisNode) {
  const auto local_size = [](const std::string& list, const std::string& node) {
    return placed(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", list},
                                {"SLURM_NODEID", node},
                                {"SLURM_LOCALID", "0"}}))
        ->local_size;
  };
  EXPECT_EQ(local_size("3(x2),1", "0"), 3);
  EXPECT_EQ(local_size("3(x2),1", "1"), 3);
  EXPECT_EQ(local_size("3(x2),1", "2"), 1);
  EXPECT_EQ(local_size("7", "0"), 7);
  for (const char* bad : {"3(x2),1,", "3(y2)", "x", "3(x2", ","})
    EXPECT_TRUE(
        mentions(refusal(with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", bad}, {"SLURM_NODEID", "9"}})),
                 "SLURM_STEP_TASKS_PER_NODE"))
        << bad;
}

TEST(Environment, SlurmShellsAreNotWorkers) {
  // salloc's shell; a batch script, which has a rank but no step; srun --pty bash.
  EXPECT_FALSE(placed({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}}));
  EXPECT_FALSE(placed({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(placed({{"SLURM_STEP_NUM_TASKS", "1"},
                       {"SLURM_JOB_ID", "1"},
                       {"SLURM_STEP_ID", "4294967290"},
                       {"SLURM_PROCID", "0"}}));
  // Rank 1 can only be a worker.
  EXPECT_TRUE(
      mentions(refusal({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}, {"SLURM_PROCID", "1"}}),
               "SLURM_STEP_ID is not"));
}

TEST(Environment, TheFirstHostOfAList) {
  const std::pair<const char*, const char*> expected[] = {
      {"node7", "node7"},
      {"node[07-12,20]", "node07"},
      {"gpu[3,9-11],login", "gpu3"},
      {"login,gpu[1-2]", "login"},
      {"rack[2-3]node[10-19].lan", "rack2node10.lan"},
      {"a[1", "a1"},
      {"", ""}};
  for (const auto& [list, first] : expected) EXPECT_EQ(first_host(list), first) << list;
}

TEST(Environment, SlurmSaysWhereWorkersMeetAndWhichStartThisIs) {
  const auto nodes = with(kSlurm, {{"SLURM_STEP_NODELIST", "node[07-12]"}});
  EXPECT_EQ(placed(nodes)->rendezvous, "node07:20123");
  EXPECT_EQ(placed(with(nodes, {{"SLURM_STEP_ID", "1"}}))->rendezvous, "node07:21132");
  EXPECT_EQ(placed(with(nodes, {{"SLURM_JOB_ID", "67000001"}}))->rendezvous, "node07:20001");
  EXPECT_EQ(placed(kSlurm)->rendezvous, "") << "older versions do not name the nodes of a step";
  EXPECT_EQ(placed(nodes)->run_id, "slurm-123-0-0");
  EXPECT_EQ(placed(with(nodes, {{"SLURM_RESTART_COUNT", "2"}}))->run_id, "slurm-123-0-2");
}

TEST(Environment, AJobsScriptMaySayWhereWorkersMeet) {
  const Variables master{{"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "29500"}};
  const auto slurm = with(kSlurm, {{"SLURM_STEP_NODELIST", "node[07-12]"}});
  for (const Variables& launcher : {kOpenMpi, kMpich, slurm}) {
    EXPECT_EQ(placed(with(launcher, master))->rendezvous, "[fe80::1]:29500");
    auto both = with(launcher, master);
    both["SKEIN_RENDEZVOUS"] = "here:1";
    EXPECT_EQ(placed(both)->rendezvous, "here:1");
  }
  EXPECT_EQ(placed(kMpich)->rendezvous, "");
}

TEST(Environment, TorchrunMayNeedItsPortItself) {
  const auto port = [](const std::string& master, const std::string& taken) {
    return placed(with(kTorchrun, {{"MASTER_ADDR", "node0"},
                                   {"MASTER_PORT", master},
                                   {"TORCHELASTIC_USE_AGENT_STORE", taken}}))
        ->rendezvous;
  };
  EXPECT_EQ(port("29500", "False"), "node0:29500");
  EXPECT_EQ(port("29500", "True"), "node0:29501");
  EXPECT_EQ(port("39415", "True"), "node0:29416");
  EXPECT_EQ(port("49999", "True"), "node0:20000");
}

TEST(Environment, ANumberOfWorkersWithoutARankIsNotTorchruns) {
  for (const auto& [launcher, name] : {std::pair(kSlurm, "slurm"), std::pair(kOpenMpi, "openmpi")})
    EXPECT_EQ(placed(with(launcher, {{"WORLD_SIZE", "7"}}))->launcher, name);
  EXPECT_TRUE(mentions(refusal({{"WORLD_SIZE", "7"}}), "half set")) << "here nobody has a rank";
}

TEST(Environment, SlurmsOwnPmiIsSlurm) {
  auto both = with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}});
  EXPECT_EQ(placed(both)->launcher, "slurm");
}

}  // namespace
}  // namespace skein

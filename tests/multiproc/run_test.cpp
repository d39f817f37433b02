// `skein run` with small shell programs as workers.
#include <nlohmann/json.hpp>
#include <set>

#include "fabric/fabric.h"
#include "multiproc/paths.h"
#include "multiproc/process.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> skein_run(int workers, const std::string& script,
                                   std::vector<std::string> options = {}) {
  std::vector<std::string> argv{kSkein, "run", "-n", std::to_string(workers)};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--", "sh", "-c", script});
  return argv;
}

// Processes, zombies aside, that have `mark` in their environment: those of one test.
std::set<pid_t> processes_with(const std::string& mark) {
  std::set<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = contents(entry.path() / "environ");
    if (environment.find(mark) != std::string::npos) out.insert(std::stoi(name));
  }
  return out;
}

TEST(Run, GivesEachWorkerItsPlace) {
  const Folder folder;
  const auto end = run(skein_run(
      3, "echo $SKEIN_SIZE $SKEIN_RUN > " + folder.path() + "/$SKEIN_RANK; echo rank $SKEIN_RANK"));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "rank 0\n");  // the others have logs
  EXPECT_EQ(end.err, "");
  const std::string first = contents(folder / "0");
  EXPECT_EQ(first.rfind("3 ", 0), 0u) << first;
  EXPECT_EQ(first.size(), 2 + 32 + 1u) << first;  // 128 bits in hex
  EXPECT_EQ(contents(folder / "1"), first);
  EXPECT_EQ(contents(folder / "2"), first);
}

TEST(Run, LimitsThreadsUnlessTheUserDid) {
  const std::string script = "echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS";
  EXPECT_EQ(run({"env", "-u", "OMP_NUM_THREADS", "-u", "OPENBLAS_NUM_THREADS", kSkein, "run", "--",
                 "sh", "-c", script})
                .out,
            "1 1\n");
  EXPECT_EQ(run(skein_run(1, script), {{"OMP_NUM_THREADS", "3"}}).out, "3 1\n");
}

TEST(Run, TellsWorkersWhichFabricToUseWhereTheUserSaysIt) {
  const std::string script = "echo ${SKEIN_FABRIC:-none}";
  EXPECT_EQ(run(skein_run(2, script)).out, "none\n");
  EXPECT_EQ(run(skein_run(2, script, {"--fabric", "local"})).out, "local\n");
}

TEST(Run, KeepsLogsWhereItIsTold) {
  const Folder folder;
  const auto end =
      run(skein_run(3, "echo out $SKEIN_RANK; echo err >&2", {"--log-dir", folder / "a/b"}));
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(contents(folder / "a/b/rank-1.log"), "out 1\nerr\n");
  EXPECT_EQ(contents(folder / "a/b/rank-2.log"), "out 2\nerr\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "a/b/rank-0.log"));
}

TEST(Run, TemporaryLogsGoAfterSuccessAndStayAfterFailure) {
  const Folder folder;
  const Process::Environment environment{{"TMPDIR", folder.path()}};
  EXPECT_EQ(run(skein_run(2, "true"), environment).code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(run(skein_run(2, "test $SKEIN_RANK = 0"), environment).code, 1);
  EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
}

TEST(Run, ShowAllPutsTheRankBeforeEveryLine) {
  const auto end =
      run(skein_run(2, "echo a$SKEIN_RANK; echo e$SKEIN_RANK >&2; printf b", {"--show-all"}));
  EXPECT_EQ(end.code, 0);
  for (const char* line : {"[0] a0\n", "[1] a1\n", "[0] b\n", "[1] b\n"})
    EXPECT_EQ(count(end.out, line), 1) << line << end.out;
  for (const char* line : {"[0] e0\n", "[1] e1\n"}) EXPECT_EQ(count(end.err, line), 1) << end.err;
}

TEST(Run, NamesTheFirstToFailAndWhatItSaid) {
  const auto end = run(
      skein_run(3, "if [ $SKEIN_RANK = 1 ]; then echo no more tea; exit 3; fi; exec sleep 10000"));
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err.rfind("skein: rank 1 exited with code 3; the run has ended.\n", 0), 0u)
      << end.err;
  EXPECT_EQ(count(end.err, "    | no more tea\n"), 1) << end.err;
  EXPECT_EQ(count(end.err, "skein:"), 1) << end.err;
}

TEST(Run, TheFirstFailureIsTheCauseNotItsConsequence) {
  const Folder folder;
  const auto end =
      run(skein_run(3,
                    "case $SKEIN_RANK in 2) echo $$ > $D/new; mv $D/new $D/dead; exit 5;; "
                    "*) while [ ! -e $D/dead ]; do sleep 0.02; done; "
                    "while kill -0 $(cat $D/dead) 2> /dev/null; do sleep 0.02; done; exit 4;; "
                    "esac"),  // when the launcher has reaped rank 2
          {{"D", folder.path()}});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err.rfind("skein: rank 2 exited with code 5;", 0), 0u) << end.err;
}

TEST(Run, KilledWorkerEndsTheRunEvenIfTheOthersResist) {
  const auto end = run(skein_run(4,
                                 "if [ $SKEIN_RANK = 2 ]; then kill -9 $$; fi; trap '' TERM; "
                                 "sleep 10000; sleep 10000"),
                       {{"SKEIN_TEST_MARK", "resist"}});
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err.rfind("skein: rank 2 was killed by SIGKILL; the run has ended.\n", 0), 0u)
      << end.err;
  EXPECT_TRUE(processes_with("SKEIN_TEST_MARK=resist").empty());
}

TEST(Run, GoesOnWithoutWorkersThatWereLostIfAsked) {
  auto words = skein_run(4,
                         "echo I am $SKEIN_RANK; case $SKEIN_RANK in 0) kill -9 $$;; 2) exit 1;; "
                         "*) sleep 0.5;; esac");
  words.insert(words.begin() + 2, "--go-on");
  const auto end = run(words);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.err, "rank 0 was killed by SIGKILL; the others go on.\n"), 1) << end.err;
  EXPECT_EQ(count(end.err, "rank 2 exited with code 1; the others go on.\n"), 1) << end.err;
  EXPECT_NE(end.out.find("I am 1"), std::string::npos) << "rank 1 speaks where rank 0 cannot";
}

TEST(Run, GoingOnEndsInFailureWhenNobodyIsLeftOrTheUserErred) {
  for (const auto& [script, code] : std::vector<std::pair<std::string, int>>{
           {"sleep 0.$SKEIN_RANK; kill -9 $$", 1},
           {"[ $SKEIN_RANK = 1 ] && exit 2; sleep 10000", 2}}) {
    auto words = skein_run(3, script);
    words.insert(words.begin() + 2, "--go-on");
    EXPECT_EQ(run(words).code, code) << script;
  }
}

TEST(Run, UsageErrorOfAllRanksIsPrintedOnce) {
  const auto end = run(skein_run(4, "echo tool: no such option >&2; exit 2"));
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.err, "tool: no such option\n");
}

TEST(Run, UsageErrorOfAnotherRankIsPrintedToo) {
  const auto end = run(skein_run(
      3, "[ $SKEIN_RANK = 2 ] && { echo tool: bad file >&2; exit 2; }; exec sleep 10000"));
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.err, "tool: bad file\n");
}

// Each worker appends to its file when it hears of Ctrl-C, and then ends well.
std::string polite_worker() {
  return "trap 'echo heard >> $D/$SKEIN_RANK; exit 0' INT; touch $D/$SKEIN_RANK; "
         "while :; do sleep 0.02; done";
}

bool all_started(const Folder& folder, int workers) {
  return eventually([&] {
    for (int rank = 0; rank < workers; ++rank)
      if (!std::filesystem::exists(folder / std::to_string(rank))) return false;
    return true;
  });
}

TEST(Run, InterruptReachesEachWorkerOnce) {
  // To the launcher alone, and to its whole process group as a terminal does.
  for (const bool group : {false, true}) {
    const Folder folder;
    Process process(skein_run(3, polite_worker()), {{"D", folder.path()}});
    ASSERT_TRUE(all_started(folder, 3));
    kill(group ? -process.pid() : process.pid(), SIGINT);
    EXPECT_EQ(process.wait().code, 0);
    for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(contents(folder / rank), "heard\n");
  }
}

TEST(Run, InterruptEndsWorkersThatDoNotHandleIt) {
  const Folder folder;
  Process process(skein_run(2, "touch $D/$SKEIN_RANK; exec sleep 10000"), {{"D", folder.path()}});
  ASSERT_TRUE(all_started(folder, 2));
  kill(process.pid(), SIGINT);
  const auto end = process.wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_EQ(end.err, "skein: interrupted by SIGINT; the run has ended.\n");
}

TEST(Run, SecondInterruptKills) {
  const Folder folder;
  Process process(skein_run(2,
                            "trap 'echo heard > $D/h$SKEIN_RANK' INT; touch $D/$SKEIN_RANK; "
                            "while :; do sleep 0.02; done"),
                  {{"D", folder.path()}, {"SKEIN_TEST_MARK", "twice"}});
  ASSERT_TRUE(all_started(folder, 2));
  kill(process.pid(), SIGINT);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "h1"); }));
  kill(process.pid(), SIGINT);
  EXPECT_EQ(process.wait().code, 130);
  EXPECT_TRUE(processes_with("SKEIN_TEST_MARK=twice").empty());
}

// As of Slurm: a warning ahead of the time limit, then SIGTERM, perhaps from two sides.
TEST(Run, AWarningAndRepeatedTermsKillNobody) {
  const Folder folder;
  Process process(skein_run(2,
                            "trap 'echo USR1 >> $D/h$SKEIN_RANK' USR1; "
                            "trap 'echo TERM >> $D/h$SKEIN_RANK' TERM; touch $D/$SKEIN_RANK; "
                            "until [ -e $D/end ]; do sleep 0.02; done"),
                  {{"D", folder.path()}});
  ASSERT_TRUE(all_started(folder, 2));
  const auto heard = [&](const std::string& text) {
    return eventually(
        [&] { return contents(folder / "h0") == text && contents(folder / "h1") == text; });
  };
  kill(process.pid(), SIGUSR1);
  EXPECT_TRUE(heard("USR1\n"));
  kill(process.pid(), SIGTERM);
  EXPECT_TRUE(heard("USR1\nTERM\n"));
  kill(process.pid(), SIGTERM);
  kill(process.pid(), SIGUSR1);
  std::ofstream(folder / "end") << "now";
  const auto end = process.wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(contents(folder / "h0"), "USR1\nTERM\n") << "passed on once";
}

TEST(Run, NothingIsLeftWhenTheLauncherIsKilled) {
  const Folder folder;
  // The workers' own children must go as well, so no exec here.
  Process process(skein_run(3, "touch $D/$SKEIN_RANK; sleep 10000; sleep 10000"),
                  {{"D", folder.path()}, {"SKEIN_TEST_MARK", "orphan"}, {"TMPDIR", folder.path()}});
  ASSERT_TRUE(all_started(folder, 3));
  ASSERT_GE(processes_with("SKEIN_TEST_MARK=orphan").size(), 4u);
  kill(process.pid(), SIGKILL);
  EXPECT_EQ(process.wait().signal, SIGKILL);
  EXPECT_TRUE(eventually([] { return processes_with("SKEIN_TEST_MARK=orphan").empty(); }));
}

TEST(Run, NothingIsLeftOfWhatWorkersStarted) {
  const auto end = run(skein_run(2, "sleep 10000 & exit 0"), {{"SKEIN_TEST_MARK", "stray"}});
  EXPECT_EQ(end.code, 0);
  EXPECT_TRUE(eventually([] { return processes_with("SKEIN_TEST_MARK=stray").empty(); }));
}

TEST(Run, ProgramThatCannotBeStarted) {
  const auto end = run({kSkein, "run", "-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(end.err, "skein run: cannot start '/no/such/program': No such file or directory\n");
}

std::string most() { return std::to_string(kMostWorkersOfAHost); }

// Before any of them is started, in every command that would start them.
TEST(Run, RefusesMoreWorkersThanAHostTakes) {
  const std::string many = std::to_string(kMostWorkersOfAHost + 1);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"run", "-n", many, "--", "true"}, {"train", "--workers", many}}) {
    std::vector<std::string> command{kSkein};
    command.insert(command.end(), words.begin(), words.end());
    const auto end = run(command);
    EXPECT_EQ(end.code, 2);
    EXPECT_NE(end.err.find("--workers " + many + ": expected a whole number from 1 to " + most()),
              std::string::npos)
        << end.err;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
  }
}

TEST(Run, RefusesWrongOptions) {
  const auto error = [](std::vector<std::string> words) {
    words.insert(words.begin(), {kSkein, "run"});
    const auto end = run(words);
    EXPECT_EQ(end.code, 2) << end.err;
    EXPECT_EQ(count(end.err, "\n"), 1) << end.err;
    return end.err;
  };
  EXPECT_EQ(error({"-n", "0", "--", "true"}),
            "skein run: --workers 0: expected a whole number from 1 to " + most() + "\n");
  EXPECT_EQ(error({"--sow-all", "--", "true"}),
            "skein run: unknown option '--sow-all'; did you mean '--show-all'?\n");
  EXPECT_EQ(error({"-n", "2"}),
            "skein run: which program? Usage: skein run -n 4 -- PROGRAM ARGUMENTS...\n");
  EXPECT_EQ(error({"--fabric", "pigeons", "--", "true"})
                .rfind("skein run: --fabric pigeons: there is no such fabric; expected local", 0),
            0u);
  EXPECT_EQ(error({"--fabric", "mpi", "--", "true"}).rfind("skein run: --fabric mpi: ", 0), 0u);
  EXPECT_EQ(error({"--json", "/dev/null/x.json", "--", "true"}),
            "skein run: --json /dev/null/x.json: cannot make the folder '/dev/null': Not a "
            "directory\n");
}

TEST(Run, WritesJsonAndTakesOptionsFromAFileBelowThoseOfTheCommandLine) {
  const Folder folder;
  std::ofstream(folder / "run.toml") << "workers = 3\nseed = 7\n";
  const auto end = run({kSkein, "run", "--config", folder / "run.toml", "--seed", "9", "--json",
                        folder / "run.json", "--", "sh", "-c", "echo $SKEIN_SIZE $SKEIN_SEED"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "3 9\n");
  const auto json = nlohmann::json::parse(contents(folder / "run.json"));
  EXPECT_EQ(json.at("command"), "run");
  EXPECT_EQ(json.at("seed"), 9);
  EXPECT_EQ(json.at("workers"), 3);
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("config").at("workers"), 3);
  EXPECT_TRUE(json.contains("version"));
  EXPECT_GE(json.at("seconds"), 0.0);
}

TEST(Run, RefusesAWrongFileWithItsLine) {
  const Folder folder;
  const auto error = [&](const std::string& text) {
    std::ofstream(folder / "c.toml") << text;
    const auto end = run({kSkein, "run", "--config", folder / "c.toml", "--", "true"});
    EXPECT_EQ(end.code, 2);
    return end.err;
  };
  const std::string file = "skein run: " + (folder / "c.toml");
  EXPECT_EQ(error("seed = 1\nworker = 3\n"),
            file + ":2: unknown key 'worker'; did you mean 'workers'?\n");
  EXPECT_EQ(error("\n\nworkers = -1\n"),
            file + ":3: --workers -1: expected a whole number from 1 to " + most() + "\n");
  EXPECT_EQ(error("show-all = 3\n"), file + ":1: show-all = 3: expected true or false\n");
}

}  // namespace
}  // namespace skein::testing

// The launcher with real processes: shell scripts, and workers that join a World.
#include "launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "launch/crew.h"
#include "launch/logs.h"
#include "skein/error.h"
#include "skein/world.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "skein-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename Condition>
bool eventually(Condition condition, std::chrono::milliseconds limit = 20s) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

struct Launched {
  int code = -1;
  std::string err;
};

// In a process of its own, whose standard error is kept.
Launched launched(const LaunchOptions& options) {
  const Folder folder;
  const std::string err = folder / "err";
  const pid_t pid = fork();
  if (pid == 0) {
    const int file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(file, STDERR_FILENO);
    dup2(file, STDOUT_FILENO);
    for (const char* part : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(part);
    alarm(60);
    int code = 99;
    try {
      code = launch(options);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(err)};
}

LaunchOptions shell(int workers, const std::string& script) {
  LaunchOptions options;
  options.workers = workers;
  options.argv = {"sh", "-c", script};
  return options;
}

// Workers that run the disabled test `name` of this very program.
LaunchOptions program(int workers, const std::string& name) {
  LaunchOptions options;
  options.workers = workers;
  options.argv = {std::filesystem::read_symlink("/proc/self/exe"),
                  "--gtest_also_run_disabled_tests", "--gtest_filter=Program.DISABLED_" + name};
  return options;
}

// What the documentation advises: errors are caught, said, and end in code 1.
void train_until_the_tea_is_gone(World& world, int whose) {
  for (int step = 0; step < 1000; ++step) {
    if (world.rank() == whose && step == 20) throw std::runtime_error("no more tea");
    world.sum({1.0});
  }
}

TEST(Program, DISABLED_CatchesOutsideTheWorld) {
  try {
    World world = World::join();
    train_until_the_tea_is_gone(world, 2);
    std::exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::exit(1);
  }
}

TEST(Program, DISABLED_CatchesInsideTheWorld) {
  int code = 0;
  {
    World world = World::join();
    try {
      train_until_the_tea_is_gone(world, 2);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
      code = 1;
    }
  }
  std::exit(code);
}

TEST(Program, DISABLED_TakesLongToEnd) {
  int code = 0, rank = 0;
  try {
    World world = World::join();
    rank = world.rank();
    train_until_the_tea_is_gone(world, 2);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    code = 1;
  }
  if (rank == 2) std::this_thread::sleep_for(5s);
  std::exit(code);
}

class FirstCause : public ::testing::TestWithParam<const char*> {};

TEST_P(FirstCause, IsNamedWithItsMessageThoughAllCatchTheirErrors) {
  for (int repetition = 0; repetition < 3; ++repetition) {
    const Launched end = launched(program(4, GetParam()));
    EXPECT_EQ(end.code, 1);
    EXPECT_NE(end.err.find("skein: rank 2 "), std::string::npos) << end.err;
    EXPECT_NE(end.err.find("| no more tea\n"), std::string::npos) << end.err;
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, FirstCause,
                         ::testing::Values("CatchesOutsideTheWorld", "CatchesInsideTheWorld",
                                           "TakesLongToEnd"));

TEST(GoingOn, EndsAWorkerThatIsStoppedWhenTheOthersHaveEnded) {
  LaunchOptions options = shell(3, "[ $SKEIN_RANK = 1 ] && kill -STOP $$; exit 0");
  options.go_on = true;
  options.stopped_limit = 300ms;
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_NE(end.err.find("rank 1 was stopped when others had ended; it is killed"),
            std::string::npos)
      << end.err;
}

TEST(GoingOn, LetsAWorkerThatIsNotStoppedTakeItsTime) {
  LaunchOptions options = shell(3, "[ $SKEIN_RANK = 1 ] && sleep 1; exit 0");
  options.go_on = true;
  options.stopped_limit = 100ms;
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 0);
  EXPECT_EQ(end.err, "");
}

TEST(StoppedEarly, IsTheCodeOfTheRunWhenNobodyFailed) {
  LaunchOptions options = shell(3, "[ $SKEIN_RANK = 2 ] && exit 0; exit 75");
  options.stopped_code = 75;
  options.resume_hint = [] { return "do it again"; };
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 75);
  EXPECT_EQ(end.err, "skein: the run was stopped before its end.\n  resume  do it again\n");
}

TEST(StoppedEarly, DoesNotHideThatAWorkerFailed) {
  LaunchOptions options = shell(3, "[ $SKEIN_RANK = 1 ] && kill -KILL $$; exit 75");
  options.stopped_code = 75;
  const Launched failed = launched(options);
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("rank 1 was killed by SIGKILL"), std::string::npos) << failed.err;
  options.go_on = true;
  EXPECT_EQ(launched(options).code, 75) << "those that are left were stopped";
}

TEST(StoppedEarly, IsAFailureOfProgramsThatDoNotSaySo) {
  EXPECT_EQ(launched(shell(2, "exit 75")).code, 1);
}

TEST(Logs, OfAnEarlierRunAreKept) {
  const Folder folder;
  LaunchOptions options = shell(3, "echo first; exit 1");
  options.log_dir = folder / "logs";
  launched(options);
  options.workers = 2;
  options.argv.back() = "echo second";
  EXPECT_EQ(launched(options).code, 0);
  EXPECT_EQ(launched(options).code, 0);
  EXPECT_EQ(contents(folder / "logs/earlier-1/rank-1.log"), "first\n");
  EXPECT_EQ(contents(folder / "logs/earlier-1/rank-2.log"), "first\n");
  EXPECT_EQ(contents(folder / "logs/earlier-2/rank-1.log"), "second\n");
  EXPECT_EQ(contents(folder / "logs/rank-1.log"), "second\n");
  EXPECT_FALSE(std::filesystem::exists(folder / "logs/rank-2.log")) << "of a run that had more";
}

WorkerStart sleeper() {
  WorkerStart how;
  how.argv = {"sleep", "60"};
  how.environment = {"PATH=/usr/bin:/bin"};
  return how;
}

std::vector<pid_t> own_children() {
  std::ifstream in("/proc/self/task/" + std::to_string(getpid()) + "/children");
  return {std::istream_iterator<pid_t>(in), {}};
}

// A child with this very number, asleep; or -1 when the system does not let it have that.
pid_t child_with_number(pid_t number) {
  clone_args how{};
  how.exit_signal = SIGCHLD;
  how.set_tid = reinterpret_cast<std::uint64_t>(&number);
  how.set_tid_size = 1;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &how, sizeof(how)));
  if (pid == 0) {
    setpgid(0, 0);
    for (;;) pause();
  }
  return pid;
}

TEST(Crew, KillsItsProcessGroupOnceAndNobodyWhoHasItsNumberLater) {
  pid_t other = -1;
  {
    Crew crew;
    crew.start(sleeper());
    const std::vector<pid_t> children = own_children();
    ASSERT_EQ(children.size(), 1u);
    const pid_t group = getpgid(children.front());
    crew.signal(SIGKILL);
    ASSERT_TRUE(eventually([&] { return crew.reap(0).has_value(); }));
    if (!eventually([&] { return kill(group, 0) != 0; }, 2s))
      GTEST_SKIP() << "nobody takes leave of the guardian here";
    other = child_with_number(group);
    if (other < 0) GTEST_SKIP() << "only root may choose a process's number";
    ASSERT_TRUE(eventually([&] { return getpgid(other) == other; }));
  }
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0) << "it was killed";
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(Crew, KnowsWhoIsStopped) {
  Crew crew;
  crew.start(sleeper());
  EXPECT_FALSE(crew.stopped(0));
  const pid_t pid = own_children().front();
  kill(pid, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return crew.stopped(0); }));
  kill(pid, SIGCONT);
  EXPECT_TRUE(eventually([&] { return !crew.stopped(0); }));
}

}  // namespace
}  // namespace skein

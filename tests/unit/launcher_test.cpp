// The launcher with real processes: shell scripts, and workers that join a World.
#include "launch/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
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
#include "runtime/world_impl.h"
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
bool eventually(Condition condition, std::chrono::milliseconds limit = 600s) {
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

// In this process, which then ends.
[[noreturn]] void launch_and_exit(const LaunchOptions& options, int out, int err) {
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const char* part : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) unsetenv(part);
  alarm(900);
  int code = 99;
  try {
    code = launch(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  std::fflush(nullptr);
  _exit(code);
}

int new_file(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

// In a process of its own, which may have only `files` open; its standard error is kept.
Launched launched(const LaunchOptions& options, rlimit files = {0, 0}) {
  const Folder folder;
  const std::string err = folder / "err";
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const int file = new_file(err);
    if (files.rlim_cur > 0) setrlimit(RLIMIT_NOFILE, &files);
    launch_and_exit(options, file, file);
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

TEST(Program, DISABLED_ExitsWellInTheMiddle) {
  try {
    World world = World::join();
    for (int step = 0; step < 1000; ++step) {
      if (world.rank() == 1 && step == 5) std::exit(0);
      world.sum({1.0});
    }
    std::exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::exit(1);
  }
}

// All are there when it returns, however long that took; from then on nobody waits for longer.
World join_with_patience(Duration patience) {
  JoinOptions options;
  options.patience = 120s;
  World world = World::join(options);
  world.barrier();
  world.impl().set_patience(patience);
  return world;
}

TEST(Program, DISABLED_StopsInTheMiddle) {
  try {
    World world = join_with_patience(2s);
    for (int step = 0; step < 1000; ++step) {
      if (world.rank() == 1 && step == 5) raise(SIGSTOP);
      world.sum({1.0});
    }
    std::exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::exit(1);
  }
}

TEST(Program, DISABLED_HangsInTheMiddle) {
  try {
    World world = join_with_patience(2s);
    for (int step = 0; step < 1000; ++step) {
      if (world.rank() == 1 && step == 5)
        for (;;) pause();
      world.sum({1.0});
    }
    std::exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::exit(1);
  }
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

// Whoever fails as a consequence waits until the launcher has reaped the cause.
TEST(FailureReport, NamesTheFirstFailureAndNotItsConsequence) {
  const Folder folder;
  LaunchOptions options =
      shell(3, "cd " + (folder / "") +
                   "; if [ $SKEIN_RANK = 2 ]; then echo $$ > new; mv new dead; exit 5; fi; "
                   "until [ -e dead ]; do sleep 0.02; done; "
                   "while kill -0 $(cat dead) 2> /dev/null; do sleep 0.02; done; exit 4");
  options.settle = 600s;
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(end.err.rfind("skein: rank 2 exited with code 5;", 0), 0u) << end.err;
  EXPECT_NE(end.err.find("  rank 0  exited with code 4\n"), std::string::npos) << end.err;
}

TEST(FailureReport, NamesTheRankThatLeftWithExitCodeZero) {
  for (int repetition = 0; repetition < 3; ++repetition) {
    const Launched end = launched(program(3, "ExitsWellInTheMiddle"));
    EXPECT_EQ(end.code, 1);
    EXPECT_NE(end.err.find("skein: rank 1 left the others, with exit code 0, at step "),
              std::string::npos)
        << end.err;
  }
}

TEST(FailureReport, NamesTheRankThatIsSuspended) {
  LaunchOptions options = program(3, "StopsInTheMiddle");
  options.grace = 100ms;
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("skein: rank 1 was suspended, as by SIGSTOP, at step "), std::string::npos)
      << end.err;
}

TEST(FailureReport, NamesTheRankThatHangs) {
  LaunchOptions options = program(3, "HangsInTheMiddle");
  const Launched end = launched(options);
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("skein: rank 1 did not answer the others at step "), std::string::npos)
      << end.err;
}

TEST(Launcher, RaisesTheLimitOnOpenFilesForItsWorkers) {
  const Folder folder;
  const Launched end = launched(shell(2, "ulimit -Sn > " + (folder / "$SKEIN_RANK")), {40, 3000});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(contents(folder / "1"), "3000\n");
}

TEST(Launcher, RefusesMoreWorkersThanTheLimitOnOpenFilesAllows) {
  const Folder folder;
  const Launched end = launched(shell(20, "echo > " + (folder / "started")), {40, 40});
  EXPECT_EQ(end.code, 99) << "an error of the user's";
  EXPECT_EQ(end.err.rfind("starting 20 workers needs ", 0), 0u) << end.err;
  EXPECT_NE(end.err.find("this process may have 40: expected more: `ulimit -n "), std::string::npos)
      << end.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "started"));
}

// A launcher whose standard output is a pipe.
class UnreadOutput : public ::testing::Test {
 protected:
  UnreadOutput() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
  }
  ~UnreadOutput() override {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  void start(const std::string& script, bool errors_too = false) {
    LaunchOptions options = shell(2, script);
    options.show_all = true;
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0)
      launch_and_exit(options, writer_.get(),
                      errors_too ? writer_.get() : new_file(folder_ / "err"));
  }
  bool becomes_full() {
    return eventually([&] {
      pollfd room{writer_.get(), POLLOUT, 0};
      return poll(&room, 1, 0) == 0;
    });
  }
  int exit_code() {
    int status = 0;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string all_there_is() {
    writer_ = FileDescriptor();
    std::string out;
    char buffer[4096];
    for (ssize_t count; (count = read(reader_.get(), buffer, sizeof(buffer))) > 0;)
      out.append(buffer, static_cast<std::size_t>(count));
    return out;
  }

  const Folder folder_;
  FileDescriptor reader_, writer_;
  pid_t pid_ = -1;
};

TEST_F(UnreadOutput, DoesNotKeepALauncherFromBeingInterrupted) {
  start("while :; do echo a line of a worker that talks; done");
  ASSERT_TRUE(becomes_full());
  kill(pid_, SIGINT);
  EXPECT_EQ(exit_code(), 128 + SIGINT);
  EXPECT_NE(contents(folder_ / "err").find("skein: interrupted by SIGINT"), std::string::npos);
}

TEST_F(UnreadOutput, WithErrorsInItDoesNotKeepALauncherFromBeingTerminated) {
  start("while :; do echo a line of a worker that talks; done", true);
  ASSERT_TRUE(becomes_full());
  kill(pid_, SIGTERM);
  EXPECT_EQ(exit_code(), 128 + SIGTERM);
}

TEST_F(UnreadOutput, IsNotMadeNonBlockingForItsOtherWriters) {
  start("while :; do echo a line of a worker that talks; done");
  ASSERT_TRUE(becomes_full());
  EXPECT_EQ(fcntl(writer_.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(UnreadOutput, ArrivesWholeHoweverLateItIsRead) {
  start("i=0; while [ $i -lt 20000 ]; do echo line $i of a worker; i=$((i + 1)); done");
  ASSERT_TRUE(becomes_full());
  const std::string all = all_there_is();
  EXPECT_EQ(exit_code(), 0);
  for (const char* rank : {"[0] line ", "[1] line "}) {
    std::size_t lines = 0;
    for (std::size_t at = all.find(rank); at != std::string::npos; at = all.find(rank, at + 1))
      ++lines;
    EXPECT_EQ(lines, 20000u) << rank;
  }
}

TEST_F(UnreadOutput, OfWorkersThatHaveEndedIsDroppedByAnInterruptWithItsCode) {
  start(
      "i=0; while [ $i -lt 3000 ]; do echo line $i of a worker that ends; i=$((i + 1)); done; "
      "echo > " +
      (folder_ / "$SKEIN_RANK"));
  ASSERT_TRUE(eventually([&] {
    return std::filesystem::exists(folder_ / "0") && std::filesystem::exists(folder_ / "1");
  }));
  kill(pid_, SIGINT);
  EXPECT_EQ(exit_code(), 130);
}

// To its parent, a process that is traced has not ended as long as the tracer does not look.
TEST(Launcher, LeavesAKilledWorkerBehindThatDoesNotEnd) {
  const Folder folder;
  LaunchOptions options =
      shell(2, "cd " + (folder / "") +
                   "; if [ $SKEIN_RANK = 1 ]; then echo $$ > new; mv new pid; exec sleep 100; fi; "
                   "until [ -e traced ]; do sleep 0.02; done; exit 1");
  options.grace = 100ms;
  options.kill_limit = 200ms;
  std::fflush(nullptr);
  const pid_t tracer = fork();
  if (tracer == 0) {
    alarm(900);
    while (!std::filesystem::exists(folder / "pid")) std::this_thread::sleep_for(5ms);
    const auto pid = static_cast<pid_t>(std::stoi(contents(folder / "pid")));
    const bool traced = ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0;
    std::ofstream(folder / (traced ? "traced" : "refused")) << "now";
    if (!traced) std::ofstream(folder / "traced") << "not";
    for (;;) pause();
  }
  const Launched end = launched(options);
  kill(tracer, SIGKILL);
  waitpid(tracer, nullptr, 0);
  if (std::filesystem::exists(folder / "refused"))
    GTEST_SKIP() << "this system does not let one process trace another";
  EXPECT_EQ(end.code, 1);
  EXPECT_NE(end.err.find("skein: rank 1 was killed and does not end: "), std::string::npos)
      << end.err;
  EXPECT_NE(end.err.find("skein: rank 0 exited with code 1"), std::string::npos) << end.err;
}

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
  how.argv = {"sleep", "10000"};
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
    if (!eventually([&] { return kill(group, 0) != 0; }, 20s))
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

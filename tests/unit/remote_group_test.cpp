// The launcher with workers on other hosts, to which a script leads in place of ssh: it drops the
// host's name and runs the rest here.
#include "launch/remote_group.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <string_view>
#include <thread>

#include "launch/agent.h"
#include "launch/launcher.h"
#include "multiproc/process.h"
#include "runtime/fabrics.h"
#include "skein/error.h"
#include "skein/world.h"

namespace {

// The end of the name of a file whose server is slow: this process's first write to it takes long.
const char* slow_file = nullptr;

bool is_slow(int file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  char path[4096] = {};
  return slow_file != nullptr && ::readlink(link.c_str(), path, sizeof path - 1) > 0 &&
         std::string_view(path).ends_with(slow_file);
}

}  // namespace

// In place of the C library's.
extern "C" ssize_t write(int file, const void* data, size_t bytes) {
  if (is_slow(file)) {
    slow_file = nullptr;
    std::this_thread::sleep_for(std::chrono::seconds(8));
  }
  return ::syscall(SYS_write, file, data, bytes);
}

namespace skein {
namespace {

using namespace std::chrono_literals;
using testing::contents;
using testing::count;
using testing::eventually;
using testing::Folder;

TEST(Program, DISABLED_Agent) {
  try {
    run_agent(STDIN_FILENO, STDOUT_FILENO);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  _exit(0);
}

// Zombies aside, which somebody else has to bury.
bool runs(pid_t pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  return stat.find(") ") != std::string::npos && stat.find(") Z") == std::string::npos;
}

TEST(Program, DISABLED_JoinsByDefault) {
  try {
    World world = World::join();
    const double sum = world.sum({1.0}).front();
    if (world.rank() == 0) std::cout << "sum " << sum << " over " << world.fabric() << std::endl;
    _exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    _exit(2);
  }
}

struct Launched {
  int code = -1;
  std::string out, err;
};

// A launcher in a process of its own, and the folder that its workers know as $D.
class Remote : public ::testing::Test {
 protected:
  void SetUp() override {
    // What it prints before the agent greets is what some hosts do, too.
    script("skein", "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; echo $$ >> $D/agents; exec " +
                        std::filesystem::read_symlink("/proc/self/exe").string() +
                        " --gtest_also_run_disabled_tests --gtest_filter=Program.DISABLED_Agent");
    script("ssh", "shift; exec sh -c \"$*\"");
    options_.settle = 300ms;
    options_.log_dir = folder_ / "logs";
    RemoteOptions& remote = options_.remote.emplace();
    remote.ssh = {folder_ / "ssh"};
    remote.ssh_to_this_host = true;
    remote.program = folder_ / "skein";
    remote.patience = 600s;
    use_hosts("127.0.0.1:2,127.0.0.2:2");
  }
  void TearDown() override {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  void use_hosts(const std::string& list) {
    options_.remote->hosts = parse_hosts(list, 256);
    options_.workers = total_workers(options_.remote->hosts);
  }
  void script(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  // What leads to the second host.
  void second_way(const std::string& text) {
    script("ssh", "if [ $1 = 127.0.0.2 ]; then " + text + "; fi; shift; exec sh -c \"$*\"");
  }

  void start(const std::string& worker) { start_program({"sh", "-c", worker}); }
  void start_program(std::vector<std::string> argv) {
    options_.argv = std::move(argv);
    std::fflush(nullptr);  // else the other process prints it again
    pid_ = fork();
    if (pid_ != 0) return;
    setenv("D", folder_.path().c_str(), 1);
    for (const auto& [name, to] :
         {std::pair("out", STDOUT_FILENO), std::pair("err", STDERR_FILENO)})
      dup2(open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), to);
    alarm(900);
    if (out_ >= 0) dup2(out_, STDOUT_FILENO);
    int code = 99;
    try {
      code = launch(options_);
    } catch (const ConfigError& error) {
      std::cerr << error.what() << std::endl;
      code = 2;
    } catch (const Error& error) {
      std::cerr << error.what() << std::endl;
      code = 1;
    }
    std::fflush(nullptr);
    _exit(code);
  }
  Launched wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents(folder_ / "out"),
            contents(folder_ / "err")};
  }
  Launched run(const std::string& worker) {
    start(worker);
    return wait();
  }

  // The numbers that processes have written to a file, once there are so many.
  std::vector<pid_t> pids(const std::string& name, std::size_t number) {
    std::vector<pid_t> out;
    EXPECT_TRUE(eventually([&] {
      out.clear();
      std::ifstream in(folder_ / name);
      for (pid_t pid = 0; in >> pid;) out.push_back(pid);
      return out.size() >= number;
    }));
    out.resize(number, -1);
    return out;
  }
  bool all_end(const std::vector<pid_t>& processes) {
    return eventually([&] { return std::none_of(processes.begin(), processes.end(), runs); });
  }

  // What leads to a host leaves what the agent there has said in said-HOST.
  void keep_what_agents_say() { script("ssh", "host=$1; shift; sh -c \"$*\" | tee $D/said-$host"); }
  // Once the agents of both hosts have sent so many more signs of life, and nothing else.
  bool both_say(std::size_t signs) {
    const auto said = [&](const char* host) {
      return contents(folder_ / (std::string("said-127.0.0.") + host)).size();
    };
    const std::size_t bytes = signs * frame(MessageKind::alive).size();
    const std::size_t one = said("1"), two = said("2");
    return eventually([&] { return said("1") >= one + bytes && said("2") >= two + bytes; });
  }
  bool is_stopped(pid_t pid) {
    return eventually([&] {
      return contents("/proc/" + std::to_string(pid) + "/stat").find(") T") != std::string::npos;
    });
  }

  const Folder folder_;
  LaunchOptions options_;
  int out_ = -1;  // where the launcher prints; -1: to a file
  pid_t pid_ = -1;
};

// Leaves its number and sleeps.
constexpr const char* kSleeper = "echo $$ >> $D/pids; exec sleep 10000";

TEST_F(Remote, WorkersHaveTheirPlacesAndOneSecret) {
  const auto end = run(
      "echo $SKEIN_SIZE $SKEIN_LOCAL_RANK/$SKEIN_LOCAL_SIZE $SKEIN_RENDEZVOUS > $D/$SKEIN_RANK; "
      "cat $SKEIN_SECRET_FILE > $D/secret-$SKEIN_RANK; echo rank $SKEIN_RANK; echo error >&2");
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "rank 0\n");
  EXPECT_EQ(end.err, "error\n");
  EXPECT_EQ(contents(folder_ / "logs/rank-3.log"), "rank 3\nerror\n");
  const std::string place = contents(folder_ / "2");
  EXPECT_EQ(place.rfind("4 0/2 127.0.0.1:", 0), 0u) << place;
  EXPECT_EQ(contents(folder_ / "3").substr(0, 6), "4 1/2 ");
  const std::string secret = contents(folder_ / "secret-0");
  EXPECT_GE(secret.size(), 31u);  // a zero byte at the end would be one
  EXPECT_EQ(contents(folder_ / "secret-3"), secret);
}

TEST_F(Remote, TheSecretIsOnNoCommandLineAndInNoEnvironment) {
  start("cat $SKEIN_SECRET_FILE > $D/secret; echo $$ >> $D/pids; exec sleep 10000");
  pids("pids", 4);
  const std::string part = contents(folder_ / "secret").substr(0, 8);
  ASSERT_EQ(part.size(), 8u);
  for (const auto& entry : std::filesystem::directory_iterator("/proc"))
    for (const char* file : {"cmdline", "environ"})
      EXPECT_EQ(contents(entry.path() / file).find(part), std::string::npos) << entry.path();
}

TEST_F(Remote, AllThatIsPrintedArrivesWhole) {
  options_.show_all = true;
  options_.log_dir.clear();
  const auto end =
      run("i=0; while [ $i -lt 8000 ]; do echo line $i of a worker that talks; "
          "i=$((i + 1)); done; printf last");
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.out, "\n"), 4 * 8001);
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"}) {
    EXPECT_EQ(count(end.out, std::string(rank) + " line 7999 of a worker that talks\n"), 1);
    EXPECT_EQ(count(end.out, std::string(rank) + " last\n"), 1);
  }
}

TEST_F(Remote, AWorkerThatDiesIsNamedWithItsHost) {
  start("echo $$ >> $D/pids; echo $$ > $D/$SKEIN_RANK; exec sleep 10000");
  const auto all = pids("pids", 4);
  const auto third = pids("2", 1);
  kill(third[0], SIGKILL);
  const auto end = wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(
      end.err.rfind("skein: rank 2 on 127.0.0.2 was killed by SIGKILL; the run has ended.\n", 0),
      0u)
      << end.err;
  EXPECT_EQ(count(end.err, "skein:"), 1) << end.err;
  EXPECT_TRUE(all_end(all));
}

TEST_F(Remote, AHostThatIsLostIsNamed) {
  start(kSleeper);
  const auto all = pids("pids", 4), agents = pids("agents", 2);
  kill(agents[1], SIGKILL);  // also what leads there, since the script has become the agent
  const auto end = wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, " was lost with its host"), 2) << end.err;
  EXPECT_EQ(count(end.err, "  error   " + folder_ / "ssh ended with code 137"), 1) << end.err;
  EXPECT_EQ(count(end.err, "skein:"), 1) << end.err;
  EXPECT_TRUE(all_end(all)) << "of either host";
}

TEST_F(Remote, AHostThatDoesNotAnswerIsGivenUp) {
  options_.grace = 200ms;
  start("echo $$ >> $D/pids; echo $$ > $D/$SKEIN_RANK; exec sleep 10000");
  pids("pids", 4);
  const auto agents = pids("agents", 2);
  for (const pid_t agent : agents) kill(agent, SIGSTOP);
  kill(pid_, SIGTERM);
  kill(pid_, SIGINT);  // the second one kills
  const auto end = wait();
  EXPECT_GT(end.code, 128);
  EXPECT_EQ(count(end.err, "skein: host 127.0.0.1: it does not say whether its workers have ended"),
            1)
      << end.err;
  for (const pid_t agent : agents) kill(agent, SIGKILL);
}

TEST_F(Remote, NamesAHostThatFallsSilentThoughItsConnectionStays) {
  options_.remote->silence = 3s;
  options_.grace = 200ms;
  start(kSleeper);
  const auto all = pids("pids", 4), agents = pids("agents", 2);
  kill(agents[1], SIGSTOP);
  const auto end = wait();
  kill(agents[1], SIGKILL);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, " was lost with its host"), 2) << end.err;
  EXPECT_EQ(count(end.err,
                  "  error   nothing has come from it for 3 s: it is stopped, or has no "
                  "power, or no network leads there"),
            1)
      << end.err;
  EXPECT_TRUE(all_end(all)) << "of either host";
}

TEST_F(Remote, GoesOnAfterItsLauncherWasStoppedForAMoment) {
  options_.remote->silence = 12s;
  keep_what_agents_say();
  start("echo $$ >> $D/pids; while [ ! -e $D/end ]; do sleep 0.05; done");
  pids("pids", 4);
  kill(pid_, SIGSTOP);
  ASSERT_TRUE(is_stopped(pid_));
  EXPECT_TRUE(both_say(2));
  kill(pid_, SIGCONT);
  EXPECT_TRUE(both_say(1));
  std::ofstream(folder_ / "end") << "x";
  const auto end = wait();
  EXPECT_EQ(end.code, 0) << end.err;
}

TEST_F(Remote, GoesOnAfterTheUserSuspendedItForLongerThanALauncherMayBeSilent) {
  options_.remote->silence = 3s;
  keep_what_agents_say();
  // They start no programs: a shell whose child is stopped before it becomes another program is not
  // stopped itself, but waits in the kernel.
  ASSERT_EQ(mkfifo((folder_ / "end").c_str(), 0600), 0);
  start("echo $$ >> $D/pids; : < $D/end");
  const auto all = pids("pids", 4);
  kill(pid_, SIGTSTP);
  ASSERT_TRUE(is_stopped(pid_));
  for (const pid_t worker : all) EXPECT_TRUE(is_stopped(worker));
  EXPECT_TRUE(both_say(8)) << "more than the limit, in sixths of it";
  kill(pid_, SIGCONT);
  const std::ofstream over(folder_ / "end");
  const auto end = wait();
  EXPECT_EQ(end.code, 0) << end.err;
}

// Nobody could tell it from one whose host has lost its power.
TEST_F(Remote, EndsTheWorkersOfALauncherThatStaysSuspended) {
  options_.remote->suspended = 3s;
  start(kSleeper);
  const auto all = pids("pids", 4);
  kill(pid_, SIGTSTP);
  ASSERT_TRUE(is_stopped(pid_));
  EXPECT_TRUE(all_end(all));
}

// As a hard mount does while its server is away.
TEST_F(Remote, KeepsItsWorkersWhileTheWritingOfALogIsHeldUp) {
  options_.remote->silence = 3s;
  slow_file = "/logs/rank-3.log";
  start("echo $$ >> $D/pids; echo hello; while [ ! -e $D/end ]; do sleep 0.05; done");
  slow_file = nullptr;
  const auto all = pids("pids", 4);
  EXPECT_TRUE(eventually([&] { return contents(folder_ / "logs/rank-3.log") == "hello\n"; }));
  for (const pid_t worker : all) EXPECT_TRUE(runs(worker));
  std::ofstream(folder_ / "end") << "x";
  const auto end = wait();
  EXPECT_EQ(end.code, 0) << end.err;
}

// The launcher's host has lost its power: nothing comes any more, and nothing says so.
TEST_F(Remote, EndsItsWorkersWhenTheLauncherFallsSilent) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const FileDescriptor launcher(ends[0]);
  FileDescriptor far(ends[1]);
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    setenv("D", folder_.path().c_str(), 1);
    alarm(900);
    try {
      run_agent(far.get(), far.get());
    } catch (const IoError& error) {
      std::ofstream(folder_ / "why") << error.what() << std::flush;
    }
    _exit(7);
  }
  far = FileDescriptor();
  StartOrder order;
  order.folder = folder_.path();
  order.plan.argv = {"sh", "-c", kSleeper};
  order.plan.workers = order.plan.size = 2;
  const auto send = [&](const std::string& message) {
    EXPECT_EQ(write(launcher.get(), message.data(), message.size()),
              static_cast<ssize_t>(message.size()));
  };
  send(frame(MessageKind::pulse, encode_number(0)) + frame(MessageKind::start, encode(order)));
  const auto all = pids("pids", 2);
  send(frame(MessageKind::pulse, encode_number(1500)));
  int status = 0;
  ASSERT_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(contents(folder_ / "why"), "nothing has come from the launcher for 1.5 s");
  EXPECT_TRUE(all_end(all));
}

TEST_F(Remote, CanBeInterruptedWhileNobodyReadsItsOutput) {
  for (const bool show_all : {true, false}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const FileDescriptor reader(ends[0]), writer(ends[1]);
    out_ = writer.get();
    options_.show_all = show_all;
    std::filesystem::remove(folder_ / "pids");
    start("echo $$ >> $D/pids; while :; do echo a line of a worker that talks; done");
    const auto all = pids("pids", 4);
    ASSERT_TRUE(eventually([&] {
      pollfd room{writer.get(), POLLOUT, 0};
      return poll(&room, 1, 0) == 0;
    }));
    kill(pid_, SIGINT);
    const auto end = wait();
    EXPECT_EQ(end.code, 128 + SIGINT) << end.err;
    EXPECT_EQ(count(end.err, "does not say"), 0) << end.err;
    EXPECT_TRUE(all_end(all));
  }
}

TEST_F(Remote, JoinsWorkersOfSeveralHostsThoughTheProgramNamesNoFabric) {
  const auto names = fabric_names();
  if (std::find(names.begin(), names.end(), "tcp") == names.end())
    GTEST_SKIP() << "no tcp fabric in this build";
  const std::vector<std::string> program{std::filesystem::read_symlink("/proc/self/exe"),
                                         "--gtest_also_run_disabled_tests",
                                         "--gtest_filter=Program.DISABLED_JoinsByDefault"};
  start_program(program);
  const auto joined = wait();
  EXPECT_EQ(joined.code, 0) << joined.err;
  EXPECT_EQ(count(joined.out, "sum 4 over tcp\n"), 1) << joined.out;

  options_.extra_env["SKEIN_FABRIC"] = "local";
  start_program(program);
  const auto refused = wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(count(refused.err,
                  "only 2 of the 4 workers that skein started are here: expected "
                  "fabric auto or tcp"),
            1)
      << refused.err;

  options_.extra_env["SKEIN_FABRIC"] = "pigeons";
  start_program(program);
  const auto unknown = wait();
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(count(unknown.err, "SKEIN_FABRIC=pigeons: fabric pigeons: there is no such fabric"), 1)
      << unknown.err;
}

TEST_F(Remote, AnInterruptEndsEverything) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove(folder_ / "pids");
    start(kSleeper);
    const auto all = pids("pids", 4);
    kill(pid_, signal);
    const auto end = wait();
    EXPECT_EQ(end.code, 128 + signal) << end.err;
    EXPECT_TRUE(all_end(all));
  }
}

TEST_F(Remote, NothingIsLeftWhenTheLauncherIsKilled) {
  start(kSleeper);
  const auto all = pids("pids", 4);
  kill(pid_, SIGKILL);
  wait();
  EXPECT_TRUE(all_end(all));
  EXPECT_TRUE(all_end(pids("agents", 2)));
}

TEST_F(Remote, AHostThatRefusesTheUserSaysSo) {
  second_way("echo 'me@127.0.0.2: Permission denied (publickey).' >&2; exit 255");
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "host 127.0.0.2: "), 1) << end.err;
  EXPECT_EQ(count(end.err, "ended with code 255: me@127.0.0.2: Permission denied (publickey)."), 1)
      << end.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "pids")) << "nobody was started";
}

TEST_F(Remote, AHostWithoutSkeinSaysWhatToDo) {
  options_.remote->program = "/no/such/skein";
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "Expected --remote-skein PATH"), 1) << end.err;
}

TEST_F(Remote, AHostThatHangsIsGivenUp) {
  options_.remote->patience = 10s;  // of the other host's agent, too
  second_way("echo hello; echo $$ > $D/hanging; exec sleep 10000");
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "host 127.0.0.2: no answer of an agent within 10 s (it said 'hello')"),
            1)
      << end.err;
  EXPECT_TRUE(all_end(pids("hanging", 1)));
}

TEST_F(Remote, AnInterruptEndsTheWaitForHosts) {
  second_way("echo $$ > $D/hanging; exec sleep 10000");
  start(kSleeper);
  const auto hanging = pids("hanging", 1);
  kill(pid_, SIGINT);
  const auto end = wait();
  EXPECT_EQ(end.code, 130);
  EXPECT_TRUE(all_end(hanging));
}

TEST_F(Remote, AnotherVersionIsRefusedWithBothNamed) {
  second_way("echo 'skein agent, protocol 9, version 7.0.0'; exec sleep 10000");
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "host 127.0.0.2 has Skein (protocol 9, version 7.0.0), this is Skein " +
                               agent_version()),
            1)
      << end.err;
}

TEST_F(Remote, AHostThatSaysGarbageIsRefused) {
  const std::map<std::string, std::string> sayings{
      {"cat /dev/zero", "no greeting of 'skein agent'"},
      {"exec yes", "no greeting of 'skein agent'"},
      {"echo '" + greeting() + "'; echo hello; exec sleep 10000", "no message of Skein"},
      {"echo '" + greeting() + "'; printf 'A\\377\\377\\377\\377'; exec sleep 10000",
       "a message of 4294967295 bytes"},
      {"echo '" + greeting() + "'; printf 'E\\001\\0\\0\\0x'; exec sleep 10000", "cut short"}};
  for (const auto& [saying, complaint] : sayings) {
    second_way(saying);
    const auto end = run(kSleeper);
    EXPECT_EQ(end.code, 1) << saying;
    EXPECT_EQ(end.err.rfind("host 127.0.0.2: ", 0), 0u) << saying << ": " << end.err;
    EXPECT_EQ(count(end.err, complaint), 1) << saying << ": " << end.err;
  }
}

TEST_F(Remote, AHostThatTellsOfRanksOfOthersIsRefused) {
  std::ofstream(folder_ / "ended", std::ios::binary)
      << greeting() << "\n"
      << frame(MessageKind::ended, encode(EndNews{0, {}}));
  second_way("cat $D/ended; exec sleep 10000");
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "it told of rank 0, which is not one of its own"), 1) << end.err;
}

TEST_F(Remote, AProgramThatAHostHasNotIsTheUsersError) {
  start_program({"/no/such/program"});
  const auto end = wait();
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "host 127.0.0."), 1) << end.err;
  EXPECT_EQ(count(end.err, "cannot start '/no/such/program': No such file or directory"), 1);
}

TEST_F(Remote, AnAddressThatIsNotTheFirstHostsIsRefused) {
  options_.remote->rendezvous = "192.0.2.1";  // of documents, and nobody's
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "no port at '192.0.2.1'"), 1) << end.err;
}

TEST_F(Remote, LoopbackIsNoPlaceToMeetHostsElsewhere) {
  use_hosts("localhost,elsewhere");
  const auto end = run(kSleeper);
  EXPECT_EQ(end.code, 2);
  EXPECT_EQ(count(end.err, "host localhost: 'localhost' means the loopback interface"), 1)
      << end.err;
}

TEST_F(Remote, APortThatTheUserChoseIsTaken) {
  options_.remote->rendezvous = "127.0.0.1:29123";
  const auto end = run("echo $SKEIN_RENDEZVOUS");
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "127.0.0.1:29123\n");
}

TEST_F(Remote, OthersGoOnWithoutALostHostIfAsked) {
  options_.go_on = true;
  start("echo $$ >> $D/pids; while [ ! -e $D/end ]; do sleep 0.05; done; echo done");
  pids("pids", 4);
  kill(pids("agents", 2)[1], SIGKILL);
  ASSERT_TRUE(
      eventually([&] { return count(contents(folder_ / "err"), "the others go on") == 2; }));
  std::ofstream(folder_ / "end") << "x";
  EXPECT_EQ(wait().code, 0);
}

}  // namespace
}  // namespace skein

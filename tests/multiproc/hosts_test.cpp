// `skein` with --hosts: to two hosts that are this one, by a script in place of ssh, and by ssh
// itself where there is an sshd to start.
#include <sys/stat.h>

#include "keep/checkpoint_files.h"
#include "launch/meeting_place.h"
#include "multiproc/paths.h"
#include "multiproc/train_command.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

class HostsCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto names = fabric_names();
    if (std::find(names.begin(), names.end(), "tcp") == names.end())
      GTEST_SKIP() << "no tcp fabric in this build";
    script("ssh", "shift; exec sh -c \"$*\"");
  }
  void script(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << text << "\n";
    chmod((folder_ / name).c_str(), 0700);
  }
  Words hosts(const std::string& list = "127.0.0.1:2,127.0.0.2:2") {
    return {"--hosts", list, "--ssh", folder_ / "ssh"};
  }
  // Those of one test, by a variable that the launcher has and gives to its workers.
  std::vector<pid_t> workers_with(const std::string& more) {
    std::vector<pid_t> out;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string environment = contents(entry.path() / "environ");
      if (environment.find("SKEIN_RANK=") != std::string::npos &&
          environment.find("MARK=" + folder_.path()) != std::string::npos &&
          environment.find(more) != std::string::npos)
        out.push_back(std::stoi(entry.path().filename()));
    }
    return out;
  }

  const Folder folder_;
};

TEST_F(HostsCommand, TrainingHasTheBitsOfOneHost) {
  const Words job{"--strategy", "dear", "--samples", "192", "--out"};
  train_ok(with(job, {folder_ / "one", "--workers", "4"}));
  train_ok(with(with(job, {folder_ / "many"}), hosts()));
  const std::string model = contents(folder_ / "one/model.safetensors");
  EXPECT_GT(model.size(), 1000u);
  EXPECT_TRUE(contents(folder_ / "many/model.safetensors") == model);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "many/logs/rank-3.log"));
}

// Each host would write its workers' parts to a /tmp of its own, and the trace lack them.
TEST_F(HostsCommand, ATraceThatIsNoFileNeedsAFolderThatAllHostsSee) {
  const Words job{"--strategy", "dear", "--samples", "64", "--trace", "-"};
  refused(with(job, hosts()),
          {"--trace: this is no file", "expected --out DIR, or the name of a file"});
  const Finished end = train(with(with(job, {"--out", folder_ / "out"}), hosts()));
  ASSERT_EQ(end.code, 0) << end.err;
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_GT(count(end.out, std::string("\"pid\":") + rank + ","), 3) << "rank " << rank;
}

TEST_F(HostsCommand, ThisHostNeedsNoSsh) {
  const Finished end = Process({kSkein, "run", "--hosts", "localhost:2", "--show-all", "--", "sh",
                                "-c", "echo $SKEIN_SIZE"},
                               {{"PATH", "/bin:/usr/bin"}})
                           .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.out, "[1] 2\n"), 1) << end.out;
}

TEST_F(HostsCommand, WorkersGetTheVariablesThatAreNamed) {
  script("ssh", "shift; unset TEA; exec sh -c \"$*\"");
  const Finished end = Process(with(with({kSkein, "run", "--env", "TEA"}, hosts("127.0.0.1")),
                                    {"--", "sh", "-c", "echo \"$TEA and $SKEIN_SEED\""}),
                               {{"TEA", "green  tea"}})
                           .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, "green  tea and 1\n");
}

TEST_F(HostsCommand, TheFabricIsMeasuredBetweenHosts) {
  const Finished end =
      Process(with({kSkein, "bench", "fabric", "--bytes", "64KB", "--repeat", "3"}, hosts()))
          .wait();
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(count(end.out, "4 workers on the tcp fabric"), 1) << end.out;
}

TEST_F(HostsCommand, AKilledWorkerEndsTheRunInOneBlock) {
  const Words job = command(with({"--samples", "100000000", "--checkpoint-every", "256", "--out",
                                  folder_ / "out", "--env", "MARK"},
                                 hosts()));
  Process process(job, {{"MARK", folder_.path()}});
  ASSERT_TRUE(eventually([&] { return !checkpoints_in(folder_ / "out").empty(); }));
  const auto third = workers_with("SKEIN_RANK=3");
  ASSERT_EQ(third.size(), 1u);
  kill(third[0], SIGKILL);
  const Finished end = process.wait();
  EXPECT_EQ(end.code, 1);
  // Before it there may be lines that say who is waited for while all start.
  const std::size_t block =
      end.err.find("skein: rank 3 on 127.0.0.2 was killed by SIGKILL at step ");
  ASSERT_NE(block, std::string::npos) << end.err;
  EXPECT_EQ(count(end.err.substr(0, block), "skein: rank"), 0) << end.err;
  EXPECT_EQ(count(end.err.substr(block), "\nskein:"), 0) << end.err;
  EXPECT_EQ(count(end.err, "  rank 0 on 127.0.0.1  step "), 1) << end.err;
  EXPECT_EQ(count(end.err, "  logs    " + folder_ / "out/logs/rank-*.log"), 1) << end.err;
  EXPECT_EQ(count(end.err, "  resume  skein train "), 1) << end.err;
  EXPECT_TRUE(workers_with("").empty());
}

TEST_F(HostsCommand, PrintedCommandsStartTheRunByHand) {
  const int port = [] {
    const std::string address = MeetingPlace().rendezvous();
    return std::stoi(address.substr(address.find(':') + 1));
  }();
  std::ofstream(folder_ / "secret") << "a secret of the tests, of 40 letters....";
  chmod((folder_ / "secret").c_str(), 0600);
  const Words job = command(with(
      {"--samples", "128", "--print-commands", "--rendezvous", "127.0.0.1:" + std::to_string(port),
       "--secret", folder_ / "secret", "--json", folder_ / "it's.json"},
      hosts("a,me@b:2")));
  const Finished printed = Process(job).wait();
  ASSERT_EQ(printed.code, 0) << printed.err;
  EXPECT_EQ(count(printed.out, "# on a\n"), 1);
  EXPECT_EQ(count(printed.out, "# on me@b\n"), 1);
  EXPECT_EQ(count(printed.out, "LOCAL_RANK=1 LOCAL_WORLD_SIZE=2"), 1) << printed.out;
  std::vector<std::unique_ptr<Process>> workers;
  std::istringstream lines(printed.out);
  script("skein", std::string("exec ") + kSkein + " \"$@\"");
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#"))
      workers.push_back(std::make_unique<Process>(
          Words{"sh", "-c", "PATH=" + folder_.path() + ":$PATH; export PATH; " + line}));
  ASSERT_EQ(workers.size(), 3u);
  for (const auto& worker : workers) {
    const Finished end = worker->wait();
    EXPECT_EQ(end.code, 0) << end.err;
  }
  EXPECT_EQ(json_of(folder_ / "it's.json")["workers"], 3);
}

TEST_F(HostsCommand, WhatDoesNotFitTogetherIsRefused) {
  std::ofstream(folder_ / "hosts") << "a 2\nb x\n";
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--hosts", "a,b", "--workers", "3"}, "--workers 3: the hosts have 2; leave the option out"},
      {{"--hosts", "a,b", "--fabric", "local"}, "expected --fabric tcp with --hosts"},
      {{"--hosts", "a,-b"}, "--hosts: '-b' is no host"},
      {{"--hosts", "a,b", "--hostfile", "x"}, "expected one of the two"},
      {{"--hostfile", folder_ / "none"}, "--hostfile: cannot read"},
      {{"--hostfile", folder_ / "hosts"}, "hosts:2: host 'b' with 'x' workers"},
      {{"--ssh", "rsh"}, "--ssh: there are no hosts; expected --hosts too"},
      {{"--print-commands"}, "--print-commands: there are no hosts"},
      {{"--hosts", "a,b", "--secret", "x"}, "the launcher makes a secret"},
      {{"--hosts", "a,b", "--env", "NO_SUCH_VARIABLE"}, "there is no such variable here"},
      {{"--hosts", "a,b", "--env", "SKEIN_RANK"}, "not one of Skein's own"},
      {{"--hosts", "a,b", "--rendezvous", "a:x"}, "--rendezvous a:x: expected HOST or HOST:PORT"},
      {{"--hosts", "a,b", "--emulate-speeds", "1,2,3"}, "3 speeds, 2 workers"}};
  for (const auto& [options, complaint] : cases) refused(options, {complaint});
  const Finished run = testing::run({kSkein, "run", "--hosts", "a", "-n", "2", "--", "true"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(count(run.err, "--workers 2: the hosts have 1"), 1) << run.err;
  const Finished local =
      testing::run({kSkein, "run", "--hosts", "a,b", "--fabric", "local", "--", "true"});
  EXPECT_EQ(local.code, 2);
  EXPECT_EQ(count(local.err, "expected --fabric tcp with --hosts"), 1) << local.err;
  const Finished torchrun =
      Process(command({"--hosts", "a,b"}),
              {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})
          .wait();
  EXPECT_EQ(torchrun.code, 2);
  EXPECT_EQ(count(torchrun.err, "torchrun has started this worker"), 1) << torchrun.err;
}

// With keys of its own, at a port of loopback.
class RealSsh : public HostsCommand {
 protected:
  void SetUp() override {
    HostsCommand::SetUp();
    const std::string place = MeetingPlace().rendezvous();
    port_ = place.substr(place.find(':') + 1);
    for (const char* key : {"host", "user"})
      if (run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / key}).code != 0)
        GTEST_SKIP() << "no ssh-keygen here";
    std::ofstream(folder_ / "config")
        << "Port " << port_ << "\nListenAddress 127.0.0.1\nHostKey " << folder_ / "host"
        << "\nAuthorizedKeysFile " << folder_ / "user.pub"
        << "\nStrictModes no\nUsePAM no\nPidFile none\n";
    sshd_ =
        std::make_unique<Process>(Words{"/usr/sbin/sshd", "-D", "-e", "-f", folder_ / "config"});
    const bool works = eventually(
        [&] {
          return run(with(words_of(ssh("user")), {"127.0.0.1", "true"})).code == 0;
        },
        120s);
    if (!works) GTEST_SKIP() << "no sshd that lets this user in: " << sshd_->err();
  }
  std::string ssh(const std::string& key) const {
    return "ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o IdentitiesOnly=yes "
           "-o LogLevel=ERROR -o UserKnownHostsFile=/dev/null -i " +
           folder_ / key + " -p " + port_;
  }
  static Words words_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }

  std::string port_;
  std::unique_ptr<Process> sshd_;
};

TEST_F(RealSsh, LeadsToHostsAndItsEndToTheEndOfTheirWorkers) {
  Process process({kSkein, "run", "--hosts", "127.0.0.1:2,localhost:2", "--ssh", ssh("user"),
                   "--env", "MARK", "--", "sleep", "100"},
                  {{"MARK", folder_.path()}});
  ASSERT_TRUE(eventually([&] { return workers_with("").size() == 4; }));
  kill(process.pid(), SIGKILL);
  process.wait();
  EXPECT_TRUE(eventually([&] { return workers_with("").empty(); }));
}

TEST_F(RealSsh, RefusesAUserWithAnotherKey) {
  const Finished end =
      Process({kSkein, "run", "--hosts", "127.0.0.1", "--ssh", ssh("host"), "--", "true"}).wait();
  EXPECT_EQ(end.code, 1);
  EXPECT_EQ(count(end.err, "host 127.0.0.1: ssh ended with code 255"), 1) << end.err;
  EXPECT_EQ(count(end.err, "Permission denied"), 1) << end.err;
}

}  // namespace
}  // namespace skein::testing

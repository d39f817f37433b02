// gossip and acid over tcp: a peer that is reset, or silent, holds nobody up.
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "multiproc/train_command.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

// The connections of a process that no side has closed.
int open_connections(pid_t pid) {
  std::set<std::string> sockets;
  std::error_code gone;  // it may end meanwhile
  for (std::filesystem::directory_iterator each("/proc/" + std::to_string(pid) + "/fd", gone), end;
       !gone && each != end; each.increment(gone)) {
    std::error_code closed;
    sockets.insert(std::filesystem::read_symlink(each->path(), closed).string());
  }
  std::istringstream table(contents("/proc/" + std::to_string(pid) + "/net/tcp"));
  int open = 0;
  for (std::string row; std::getline(table, row);) {
    std::istringstream in(row);
    const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    constexpr std::size_t kState = 3, kInode = 9;
    if (words.size() > kInode && words[kState] == "01" &&
        sockets.contains("socket:[" + words[kInode] + "]"))
      ++open;
  }
  return open;
}

class GossipOverTcp : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto names = fabric_names();
    if (std::find(names.begin(), names.end(), "tcp") == names.end())
      GTEST_SKIP() << "no tcp fabric in this build";
  }

  // A run of three that trains, until so many samples are done: at most 500 a second.
  void start(const std::string& samples) {
    run_ = std::make_unique<Process>(command({"--fabric",       "tcp",
                                              "--workers",      "3",
                                              "--strategy",     GetParam(),
                                              "--model",        "mlp",
                                              "--set",          "model.width=32",
                                              "--lr",           "0.01",
                                              "--batch",        "4",
                                              "--emulate-step", "24ms",
                                              "--eval-every",   "100000",
                                              "--deadline",     "10000s",
                                              "--samples",      samples,
                                              "--out",          folder_ / "out",
                                              "--json",         folder_ / "run.json"}));
    ASSERT_TRUE(eventually([&] { return lines() > 10; })) << run_->err();
    ASSERT_EQ(children_of(*run_).size(), 3u);
  }
  void send(int rank, int signal) const { ::kill(worker(rank), signal); }
  pid_t worker(int rank) const { return children_of(*run_)[static_cast<std::size_t>(rank)]; }
  int lines() const { return count(contents(folder_ / "out/metrics.jsonl"), "\n"); }

  // That the others make steps from now on.
  void expect_to_go_on() const {
    const int before = lines();
    EXPECT_TRUE(eventually([&] { return lines() > before + 10; })) << "they wait for it";
  }

  // That the run has ended well, and without whom.
  Finished expect_lost(const std::vector<int>& lost) {
    const Finished end = run_->wait();
    EXPECT_EQ(end.code, 0) << end.err;
    const Json result = json_of(folder_ / "run.json");
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(result["per_worker"][rank].contains("lost"),
                std::count(lost.begin(), lost.end(), static_cast<int>(rank)) == 1)
          << result["per_worker"];
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/model.safetensors"));
    return end;
  }

  const Folder folder_;
  std::unique_ptr<Process> run_;
};

// Its connections are reset.
TEST_P(GossipOverTcp, GoesOnWithoutOneThatIsKilled) {
  start("3000");
  send(1, SIGKILL);
  expect_to_go_on();
  expect_lost({1});
}

TEST_P(GossipOverTcp, GoesOnWhileOneIsSilentAndTakesItInAgain) {
  start("4000");
  send(1, SIGSTOP);
  expect_to_go_on();
  send(1, SIGCONT);
  expect_lost({});
}

// Nothing is reset: only its heartbeats stay away, for longer than the 10 s or more that they may,
// when the others close their connections. Nobody waits for the deadline, which is far.
TEST_P(GossipOverTcp, GoesOnWithoutOneThatStaysSilent) {
  start("8000");
  const pid_t silent = worker(1);
  EXPECT_GE(open_connections(silent), 2);
  ::kill(silent, SIGSTOP);
  expect_to_go_on();
  EXPECT_TRUE(eventually([&] { return open_connections(silent) == 0; }));
  expect_to_go_on();
  const Finished end = expect_lost({1});
  EXPECT_NE(end.out.find("lost rank 1"), std::string::npos) << end.out;
}

INSTANTIATE_TEST_SUITE_P(Strategies, GossipOverTcp, ::testing::Values("gossip", "acid"));

}  // namespace
}  // namespace skein::testing

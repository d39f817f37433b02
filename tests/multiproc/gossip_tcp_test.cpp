// gossip and acid over tcp: a peer that is reset, or silent, holds nobody up.
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "multiproc/train_command.h"
#include "runtime/fabrics.h"

namespace skein::testing {
namespace {

using namespace std::chrono_literals;

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
                                              "--deadline",     "100s",
                                              "--samples",      samples,
                                              "--out",          folder_ / "out",
                                              "--json",         folder_ / "run.json"}));
    ASSERT_TRUE(eventually([&] { return lines() > 10; }, 60s)) << run_->err();
    ASSERT_EQ(children_of(*run_).size(), 3u);
  }
  void send(int rank, int signal) const {
    ::kill(children_of(*run_)[static_cast<std::size_t>(rank)], signal);
  }
  int lines() const { return count(contents(folder_ / "out/metrics.jsonl"), "\n"); }

  // That the others make steps from now on.
  void expect_to_go_on() const {
    const int before = lines();
    EXPECT_TRUE(eventually([&] { return lines() > before + 20; }, 8s)) << "they wait for it";
  }

  // That the run has ended well, and without whom.
  Finished expect_lost(const std::vector<int>& lost) {
    const Finished end = run_->wait(100s);
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

// Nothing is reset: only its heartbeats stay away, for longer than the 10 s that they may. Nobody
// waits for the deadline, which is far.
TEST_P(GossipOverTcp, GoesOnWithoutOneThatStaysSilent) {
  start("6000");
  const auto begin = std::chrono::steady_clock::now();
  send(1, SIGSTOP);
  expect_to_go_on();
  std::this_thread::sleep_for(begin + 12s - std::chrono::steady_clock::now());
  expect_to_go_on();
  const Finished end = expect_lost({1});
  EXPECT_NE(end.out.find("lost rank 1"), std::string::npos) << end.out;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 90s);
}

INSTANTIATE_TEST_SUITE_P(Strategies, GossipOverTcp, ::testing::Values("gossip", "acid"));

}  // namespace
}  // namespace skein::testing

// Who still belongs to a run when workers have been stopped and come back, whoever started them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "fabric/local/expulsions.h"
#include "runtime/world_impl.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

TEST(Expulsions, OfTwoThatExpelEachOtherTheFirstIsRight) {
  const auto list = std::make_unique<shm::Expulsions>();
  EXPECT_TRUE(list->add(0, 1));
  EXPECT_FALSE(list->add(1, 0));
  EXPECT_FALSE(list->contains(0));
  EXPECT_TRUE(list->contains(1));
  EXPECT_TRUE(list->add(2, 1)) << "it was done already";
  EXPECT_TRUE(list->add(2, 0));
  EXPECT_FALSE(list->add(0, 2));
}

TEST(Expulsions, AreOneOrderForAllHoweverTheyMeet) {
  constexpr int kRanks = 8;
  for (int round = 0; round < 200; ++round) {
    const auto list = std::make_unique<shm::Expulsions>();
    std::vector<int> refused(kRanks);
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] {
          for (int other = 0; other < kRanks; ++other)
            if (other != rank && !list->add(rank, other))
              refused[static_cast<std::size_t>(rank)] = 1;
        });
    }
    int in = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      in += list->contains(rank) ? 0 : 1;
      EXPECT_EQ(list->contains(rank), refused[static_cast<std::size_t>(rank)] == 1) << rank;
    }
    ASSERT_EQ(in, 1);
  }
}

constexpr int kGoneOnWithout = 7;

// Workers as torchrun starts them: no board is shared, so only the fabric can tell.
class StoppedWorkers : public ::testing::Test {
 protected:
  static constexpr int kSize = 3;

  StoppedWorkers() {
    path_ = (std::filesystem::temp_directory_path() / "skein-test-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~StoppedWorkers() override {
    for (const pid_t pid : pids_)
      if (pid > 0) kill(pid, SIGKILL), waitpid(pid, nullptr, 0);
    std::filesystem::remove_all(path_);
  }

  void start(const std::set<int>& stop, int sums, Duration pause) {
    for (int rank = 0; rank < kSize; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) _exit(work(rank, stop.contains(rank), sums, pause));
      pids_.push_back(pid);
    }
  }

  int work(int rank, bool stops, int sums, Duration pause) const {
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", std::to_string(kSize)},
                                            {"LOCAL_RANK", std::to_string(rank)},
                                            {"LOCAL_WORLD_SIZE", std::to_string(kSize)},
                                            {"MASTER_ADDR", "localhost"},
                                            {"MASTER_PORT", "29500"},
                                            {"TORCHELASTIC_RUN_ID", path_}})
      setenv(name.c_str(), value.c_str(), 1);
    try {
      JoinOptions options;
      options.patience = 60s;
      World world = World::join(options);
      world.impl().tolerate_losses();
      world.barrier();
      world.impl().set_patience(700ms);
      for (int i = 0; i < sums; ++i) {
        if (stops && i == 2) raise(SIGSTOP);
        world.sum({1.0});
        std::this_thread::sleep_for(pause);
      }
      world.impl().write_once(
          [&] { std::ofstream(path_ + "/model", std::ios::app) << "rank " << rank << "\n"; });
      world.barrier();
      return 0;
    } catch (const IoError& error) {
      return std::string(error.what()).find("gone on without this worker") != std::string::npos
                 ? kGoneOnWithout
                 : 8;
    } catch (...) {
      return 9;
    }
  }

  int end_of(int rank) {
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(pids_[static_cast<std::size_t>(rank)], -1), &status, 0) > 0,
              true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void wait_until_stopped(int rank) {
    int status = 0;
    ASSERT_EQ(waitpid(pids_[static_cast<std::size_t>(rank)], &status, WUNTRACED),
              pids_[static_cast<std::size_t>(rank)]);
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  void go_on(int rank) { kill(pids_[static_cast<std::size_t>(rank)], SIGCONT); }
  std::string written() const {
    std::ifstream in(path_ + "/model");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string path_;
  std::vector<pid_t> pids_;
};

TEST_F(StoppedWorkers, WriteNothingWhenTheyComeBackAfterTheOthersEnded) {
  for (const std::set<int>& stopped : {std::set<int>{0}, {2}, {1, 2}, {0, 1}}) {
    pids_.clear();
    std::filesystem::remove(path_ + "/model");
    start(stopped, 5, 0ms);
    std::vector<int> others;
    for (int rank = 0; rank < kSize; ++rank)
      if (!stopped.contains(rank)) others.push_back(rank);
    for (const int rank : stopped) wait_until_stopped(rank);
    for (const int rank : others) EXPECT_EQ(end_of(rank), 0) << rank;
    EXPECT_EQ(written(), fmt::format("rank {}\n", others.front()));
    for (const int rank : stopped) go_on(rank);
    for (const int rank : stopped) EXPECT_EQ(end_of(rank), kGoneOnWithout) << rank;
    EXPECT_EQ(written(), fmt::format("rank {}\n", others.front()));
  }
}

TEST_F(StoppedWorkers, LeadNobodyWhenTheyComeBackWhileTheOthersGoOn) {
  start({0}, 60, 50ms);
  wait_until_stopped(0);
  std::this_thread::sleep_for(3500ms);  // the others have gone on by now, and go on still
  go_on(0);
  EXPECT_EQ(end_of(0), kGoneOnWithout);
  EXPECT_EQ(end_of(1), 0);
  EXPECT_EQ(end_of(2), 0);
  EXPECT_EQ(written(), "rank 1\n");
}

}  // namespace
}  // namespace skein

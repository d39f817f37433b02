// Who still belongs to a run when workers have been stopped and come back, whoever started them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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

// Added to the code of a worker that the machine kept from running for so long that others may have
// taken it for lost.
constexpr int kHeldUp = 32;

// Measures for how long the machine kept this process from running at most.
class Gaps {
 public:
  explicit Gaps(Duration tick)
      : thread_([this, tick] {
          const SteadyClock clock;
          for (Time last = clock.now(); !over_;) {
            std::this_thread::sleep_for(tick);
            longest_ = std::max(longest_, clock.now() - last);
            last = clock.now();
          }
        }) {}
  Duration longest() {
    over_ = true;
    thread_.join();
    return longest_;
  }

 private:
  std::atomic<bool> over_{false};
  Duration longest_{0};
  std::thread thread_;
};

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

  // Those in `stop` stop themselves after two sums. The others end after five or, `long_run`, when
  // the test says so, and say when they have summed without somebody.
  void start(const std::set<int>& stop, bool long_run, Duration patience) {
    pids_.clear();
    for (const char* name : {"/model", "/gone-on", "/enough"})
      std::filesystem::remove(path_ + name);
    for (int rank = 0; rank < kSize; ++rank) {
      const pid_t pid = fork();
      if (pid == 0) {
        Gaps gaps(patience / 16);
        const int code = work(rank, stop.contains(rank), long_run, patience);
        const bool held_up = gaps.longest() > patience / 4 && !stop.contains(rank);
        _exit(code + (held_up ? kHeldUp : 0));
      }
      pids_.push_back(pid);
    }
  }

  int work(int rank, bool stops, bool long_run, Duration patience) const {
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
      options.patience = 120s;
      World world = World::join(options);
      world.impl().tolerate_losses();
      world.barrier();
      world.impl().set_patience(patience);
      for (int i = 0;; ++i) {
        if (stops && i == 2) raise(SIGSTOP);
        const bool enough = long_run ? std::filesystem::exists(path_ + "/enough") : i == 4;
        const std::vector<double> sums = world.sum({1.0, enough ? 1.0 : 0.0});
        if (sums[0] < kSize) std::ofstream(path_ + "/gone-on") << "so it is";
        if (sums[1] > 0) break;
        if (long_run) std::this_thread::sleep_for(patience / 16);
      }
      world.once(
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
  // The same for a worker that was not stopped, which the machine may have held up.
  int end_of(int rank, bool& held_up) {
    const int code = end_of(rank);
    held_up |= code > 0 && code & kHeldUp;
    return code > 0 ? code & ~kHeldUp : code;
  }
  void go_on(int rank) { kill(pids_[static_cast<std::size_t>(rank)], SIGCONT); }
  std::string written() const {
    std::ifstream in(path_ + "/model");
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string path_;
  std::vector<pid_t> pids_;
};

// What the workers of a run came to.
struct Ends {
  std::vector<int> stopped, others;
  std::string early, late;  // what was written before the stopped ones went on, and afterwards
  bool held_up = false;     // another one, by the machine
};

// On a busy machine the others may lose each other, too: then it is tried again with more patience.
void expect_ends(const std::function<Ends(Duration patience)>& run, const std::string& written) {
  constexpr Duration kLongest = 12s;
  for (Duration patience = 700ms;; patience *= 2) {
    const Ends ends = run(patience);
    const auto all = [](const std::vector<int>& codes, int code) {
      return std::ranges::all_of(codes, [code](int each) { return each == code; });
    };
    const bool well = all(ends.stopped, kGoneOnWithout) && all(ends.others, 0) &&
                      ends.early == written && ends.late == written;
    if (!well && ends.held_up && patience < kLongest) continue;
    EXPECT_TRUE(all(ends.stopped, kGoneOnWithout))
        << fmt::format("{}", fmt::join(ends.stopped, ", "));
    EXPECT_TRUE(all(ends.others, 0)) << fmt::format("{}", fmt::join(ends.others, ", "));
    EXPECT_EQ(ends.early, written);
    EXPECT_EQ(ends.late, written);
    return;
  }
}

TEST_F(StoppedWorkers, WriteNothingWhenTheyComeBackAfterTheOthersEnded) {
  for (const std::set<int>& stopped : {std::set<int>{0}, {2}, {1, 2}, {0, 1}}) {
    std::vector<int> others;
    for (int rank = 0; rank < kSize; ++rank)
      if (!stopped.contains(rank)) others.push_back(rank);
    const auto run = [&](Duration patience) {
      start(stopped, false, patience);
      Ends ends;
      for (const int rank : stopped) wait_until_stopped(rank);
      for (const int rank : others) ends.others.push_back(end_of(rank, ends.held_up));
      ends.early = written();
      for (const int rank : stopped) go_on(rank);
      for (const int rank : stopped) ends.stopped.push_back(end_of(rank));
      ends.late = written();
      return ends;
    };
    expect_ends(run, fmt::format("rank {}\n", others.front()));
  }
}

TEST_F(StoppedWorkers, LeadNobodyWhenTheyComeBackWhileTheOthersGoOn) {
  const auto run = [&](Duration patience) {
    start({0}, true, patience);
    Ends ends;
    wait_until_stopped(0);
    while (!std::filesystem::exists(path_ + "/gone-on")) std::this_thread::sleep_for(1ms);
    go_on(0);
    ends.stopped.push_back(end_of(0));
    std::ofstream(path_ + "/enough") << "now";
    for (const int rank : {1, 2}) ends.others.push_back(end_of(rank, ends.held_up));
    ends.early = ends.late = written();
    return ends;
  };
  expect_ends(run, "rank 1\n");
}

}  // namespace
}  // namespace skein

// kill -9 in the middle of a save: before every single thing that a worker does to the file system.
// A save on a slow disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>

#include "keep/checkpoint_files.h"
#include "on_workers.h"
#include "resuming_job.h"

namespace {

// The calls that are left to this process; it counts while that is above 0.
std::atomic<long> calls_left{0};
std::atomic<long> calls_made{0};
std::atomic<int> fsync_seconds{0};  // how long this process's disk takes for a file

void about_to_change_a_file() {
  ++calls_made;
  if (calls_left > 0 && --calls_left == 0) {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
}

}  // namespace

// In place of the C library's, for this program and the libraries that it has loaded.
extern "C" {
ssize_t write(int fd, const void* data, size_t bytes) {
  about_to_change_a_file();
  return ::syscall(SYS_write, fd, data, bytes);
}
int fsync(int fd) {
  about_to_change_a_file();
  std::this_thread::sleep_for(std::chrono::seconds(fsync_seconds));
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
int rename(const char* from, const char* to) noexcept {
  about_to_change_a_file();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat2(int from_at, const char* from, int to_at, const char* to,
              unsigned int flags) noexcept {
  about_to_change_a_file();
  return static_cast<int>(::syscall(SYS_renameat2, from_at, from, to_at, to, flags));
}
int unlink(const char* path) noexcept {
  about_to_change_a_file();
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
int unlinkat(int at, const char* path, int flags) noexcept {
  about_to_change_a_file();
  return static_cast<int>(::syscall(SYS_unlinkat, at, path, flags));
}
int mkdir(const char* path, mode_t mode) noexcept {
  about_to_change_a_file();
  return static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
}

namespace skein::resume_killed_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

const Start kSgd = optimizers()[0].second;

// Two steps, saved; two more, saved while the next two are made. `victim` dies when it has made
// `calls` of its calls of the second save. With `again`, nothing is trained between the two.
void train(World& world, const std::string& folder, int victim, long calls, bool again) {
  ResumingJob job(world, kSgd, dear().set("fusion", "64"));
  job.run().resume(folder);
  job.steps(2);
  job.run().save_checkpoint(folder, {{"save", "1"}}, {.keep = 1, .wait = true});
  if (!again) job.steps(2);
  calls_made = 0;
  if (world.rank() == victim) calls_left = calls;
  job.run().save_checkpoint(folder, {{"save", "2"}}, {.keep = 1});
  job.steps(2);
  job.run().wait_for_checkpoint();
  calls_left = 0;
}

// What is there goes on to the bits of a run that was not stopped; and saves as if nothing had
// been.
void expect_to_go_on(World& world, const std::string& folder) {
  ResumingJob whole(world, kSgd, dear().set("fusion", "64"));
  whole.steps(8);
  ResumingJob job(world, kSgd, dear().set("fusion", "64"), 2);
  ASSERT_TRUE(job.run().resume(folder));
  const auto steps = static_cast<int>(job.run().steps());
  EXPECT_TRUE(steps == 2 || steps == 4) << steps;
  job.steps(8 - steps);
  EXPECT_TRUE(equal(whole.state(), job.state()));
  job.run().save_checkpoint(folder, {}, {.keep = 1, .wait = true});
  world.barrier();
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder))
    left.insert(entry.path().filename().string());
  EXPECT_EQ(left, (std::set<std::string>{std::to_string(job.run().samples()), "run.lock"}));
  world.barrier();
}

// A number that the workers of a test leave for it.
class Shared {
 public:
  Shared()
      : value_(static_cast<std::atomic<long>*>(::mmap(nullptr, sizeof(std::atomic<long>),
                                                      PROT_READ | PROT_WRITE,
                                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { ::munmap(value_, sizeof(std::atomic<long>)); }
  std::atomic<long>& operator*() { return *value_; }

 private:
  std::atomic<long>* value_;
};

// Kills `victim` at each of `calls` in turn. Who is started again goes on from what the last one
// left, before it is killed itself. Returns how many calls a save takes where nobody is killed,
// which is the last start.
long kill_at(int workers, int victim, std::vector<long> calls, bool again) {
  const TemporaryFolder folder;
  Shared made;
  calls.push_back(0);
  for (std::size_t i = 0; i < calls.size() && !testing::Test::HasFailure(); ++i) {
    const auto statuses = statuses_of_workers(workers, [&](World world) {
      if (i > 0) expect_to_go_on(world, folder / std::to_string(calls[i - 1]));
      if (testing::Test::HasFailure()) return;  // who is killed could not tell
      try {
        train(world, folder / std::to_string(calls[i]), victim, calls[i], again);
        if (world.rank() == victim) *made = calls_made.load();
      } catch (const IoError& error) {
        EXPECT_NE(world.rank(), victim) << error.what();
      }
    });
    const int end = statuses[static_cast<std::size_t>(victim)];
    if (calls[i] > 0) {
      EXPECT_TRUE(WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL) << end << " at " << calls[i];
    }
    for (int rank = 0; rank < workers; ++rank)
      if (rank != victim || calls[i] == 0) {
        EXPECT_EQ(statuses[static_cast<std::size_t>(rank)], 0) << "rank " << rank;
      }
  }
  return *made;
}

std::vector<long> from_to(long first, long last, long stride = 1) {
  std::vector<long> numbers;
  for (long number = first; number <= last; number += stride) numbers.push_back(number);
  return numbers;
}

// Before the first of its calls, before the second, … to the last.
TEST(KilledWhileSaving, BeforeAnyCallTheLastCheckpointIsWhole) {
  const long all = kill_at(1, 0, {}, false);
  EXPECT_GT(all, 30) << "this test does not see what is written";
  EXPECT_EQ(kill_at(1, 0, from_to(1, all), false), all);
}

// From where its files are written.
TEST(KilledWhileSaving, ACheckpointThatReplacesAnotherOfItsNameIsNeverMissing) {
  const long all = kill_at(1, 0, {}, true);
  EXPECT_EQ(kill_at(1, 0, from_to(all - 15, all), true), all);
}

// The leader, and one that is not.
TEST(KilledWhileSaving, OneOfThreeWorkers) {
  for (const int victim : {0, 2}) {
    const long all = kill_at(3, victim, {}, false);
    kill_at(3, victim, from_to(2, all - 2, all / 3), false);
  }
}

// Those who go on without the leader hear of the checkpoint that it did not finish, or it is there;
// and the next one is saved. `calls`: of the leader's, before it dies; 0: it does not. Returns how
// many it makes then.
long lose_the_leader(long calls) {
  const TemporaryFolder folder;
  const std::string dir = folder / "c";
  Shared made;
  const auto statuses = statuses_of_workers(3, [&](World world) {
    ResumingJob job(world, kSgd, gossip());
    job.steps(1);
    calls_made = 0;
    if (world.rank() == 0) calls_left = calls;
    job.run().save_checkpoint(dir, {{"save", "1"}});
    std::string why;
    try {
      job.run().wait_for_checkpoint();
    } catch (const Error& error) {
      why = error.what();
    }
    if (world.rank() == 0) *made = calls_made.load();
    EXPECT_EQ(why.empty(), numbered_in(dir).size() == 1) << why << " after " << calls << " calls";
    world.barrier();
    job.steps(1);
    job.run().save_checkpoint(dir, {{"save", "2"}}, {.wait = true});
    EXPECT_TRUE(inspect(dir + "/" + std::to_string(job.run().samples())).whole());
  });
  for (int rank = 0; rank < 3; ++rank) {
    const int end = statuses[static_cast<std::size_t>(rank)];
    const bool killed = WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL;
    EXPECT_TRUE(rank == 0 && calls > 0 ? killed : end == 0) << "rank " << rank << ": " << end;
  }
  return *made;
}

TEST(KilledWhileSaving, TheLivingAreNotToldOfACheckpointThatIsNotThere) {
  const long all = lose_the_leader(0);
  for (const long calls : from_to(1, all - 1, all / 8)) lose_the_leader(calls);
}

// The program ends right after the save, and one worker's disk takes longer than the patience.
TEST(SlowDisk, TheLastCheckpointHasThePartOfAWorkerThatWritesSlowly) {
  for (const auto& strategy : {allreduce(), gossip()}) {
    SCOPED_TRACE(strategy.name);
    const TemporaryFolder folder;
    const std::string dir = folder / "c";
    const auto statuses = statuses_of_workers(
        2,
        [&](World world) {
          ResumingJob job(world, kSgd, strategy);
          job.steps(1);
          if (world.rank() == 1) fsync_seconds = 2;  // for the file, and again for its folder
          job.run().save_checkpoint(dir);
        },
        std::chrono::seconds(2));
    EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
    ASSERT_EQ(numbered_in(dir).size(), 1u);
    EXPECT_TRUE(inspect(numbered_in(dir).front()).whole());
    EXPECT_TRUE(fs::exists(fs::path(numbered_in(dir).front()) / "rank-1.safetensors"));
  }
}

}  // namespace
}  // namespace skein::resume_killed_test

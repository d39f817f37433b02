#include "core/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "core/arena.h"
#include "skein/error.h"

namespace skein {
namespace {

namespace fs = std::filesystem;

// A host as its files in /proc and /sys describe it.
class Host {
 public:
  Host() : root_(fs::temp_directory_path() / ("skein-host-" + std::to_string(getpid()))) {
    fs::remove_all(root_);
  }
  ~Host() { fs::remove_all(root_); }
  Host& with(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  const fs::path& root() const { return root_; }

 private:
  fs::path root_;
};

constexpr const char* kKernel =
    "MemTotal:       24000000 kB\nMemFree:  5 kB\nMemAvailable:   20000000 kB\nSwapFree:  10 kB\n";

TEST(HostMemory, IsWhatTheKernelSays) {
  Host host;
  EXPECT_EQ(available_memory(host.root()), std::nullopt);
  host.with("proc/meminfo", kKernel);
  EXPECT_EQ(available_memory(host.root()), 20000010ull * 1024);
  EXPECT_TRUE(available_memory().has_value());
}

TEST(HostMemory, IsWhatTheTightestGroupLeaves) {
  Host host;
  host.with("proc/meminfo", kKernel).with("proc/self/cgroup", "0::/a/b\n");
  host.with("sys/fs/cgroup/a/b/memory.max", "max\n");
  host.with("sys/fs/cgroup/a/b/memory.current", "100\n");
  EXPECT_EQ(available_memory(host.root()), 20000010ull * 1024);
  host.with("sys/fs/cgroup/a/memory.max", "5000\n")
      .with("sys/fs/cgroup/a/memory.current", "4500\n");
  EXPECT_EQ(available_memory(host.root()), 500u);
  host.with("sys/fs/cgroup/a/memory.stat", "anon 4000\ninactive_file 300\nfile 400\n");
  EXPECT_EQ(available_memory(host.root()), 800u);
  host.with("sys/fs/cgroup/a/memory.current", "9999\n");
  EXPECT_EQ(available_memory(host.root()), 0u);
}

TEST(HostMemory, KnowsTheOlderGroupsToo) {
  Host host;
  host.with("proc/meminfo", kKernel).with("proc/self/cgroup", "9:name=x:/\n4:memory:/job\n0::/\n");
  host.with("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
  host.with("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "400\n");
  host.with("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  EXPECT_EQ(available_memory(host.root()), 650u);
}

TEST(HostMemory, TooMuchIsRefusedWithBothNumbers) {
  Host host;
  host.with("proc/meminfo", "MemAvailable: 1000 kB\n");
  require_memory(1024 * 1000, "a model", host.root());
  try {
    require_memory(4000000000, "a model", host.root());
    FAIL() << "expected ConfigError";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "a model needs 4 GB of memory, this host has 1.02 MB left");
  }
}

TEST(HostMemory, AHeapBlockThatDoesNotFitIsRefusedBeforeAnythingIsKilled) {
  EXPECT_THROW(allocate_on_heap(std::size_t{1} << 44), ConfigError);
}

}  // namespace
}  // namespace skein

// The limit on open files: raised where the system allows it, and named where it is not enough.
#include "core/descriptor_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include "multiproc/process.h"
#include "runtime/fabrics.h"
#include "skein/error.h"
#include "skein/world.h"

namespace skein {
namespace {

using testing::contents;
using testing::Folder;

// What `body` returns in a process of its own.
template <typename Body>
std::string in_own_process(Body body) {
  const Folder folder;
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(600);
    std::ofstream(folder / "said") << body() << std::flush;
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status));
  return contents(folder / "said");
}

rlim_t open_files() {
  std::filesystem::directory_iterator each("/proc/self/fd");
  return static_cast<rlim_t>(std::distance(begin(each), end(each)));
}

void limit_to(rlim_t own, rlim_t most) {
  const rlimit limit{own, most};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DescriptorLimit, IsRaisedToWhatTheSystemAllows) {
  EXPECT_EQ(in_own_process([] {
              limit_to(open_files() + 10, 3000);
              need_descriptors(100, "a test");
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              return std::to_string(limit.rlim_cur);
            }),
            "3000");
}

TEST(DescriptorLimit, IsNamedWithTheNeedAndTheRemedyWhereItIsTooLow) {
  const std::string said = in_own_process([] {
    limit_to(50, 60);
    try {
      need_descriptors(1000, "rank 3 of 1000 workers over tcp");
      return std::string("accepted");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  });
  EXPECT_TRUE(has(said, "rank 3 of 1000 workers over tcp needs 10")) << said;
  EXPECT_TRUE(has(said, "this process may have 60: expected more: `ulimit -n 10")) << said;
}

// What a worker of a run of 100 says that may have few descriptors, and cannot raise that.
std::string refusal_of_a_worker(const JoinOptions& options, const char* local_size) {
  return in_own_process([&] {
    for (const auto& [name, value] :
         {std::pair("SKEIN_RANK", "7"), std::pair("SKEIN_SIZE", "100"),
          std::pair("SKEIN_LOCAL_RANK", "0"), std::pair("SKEIN_LOCAL_SIZE", local_size),
          std::pair("SKEIN_RUN", "descriptor-limit-test")})
      ::setenv(name, value, 1);
    limit_to(50, 60);
    try {
      World::join(options);
      return std::string("joined");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  });
}

TEST(DescriptorLimit, IsNamedByAWorkerThatCannotJoinOthersOfItsHost) {
  const std::string said =
      refusal_of_a_worker({.fabric = "local", .patience = std::chrono::seconds(1)}, "100");
  EXPECT_TRUE(has(said, "rank 7 of 100 workers on one host needs ")) << said;
  EXPECT_TRUE(has(said, "this process may have 60: expected more: ")) << said;
}

TEST(DescriptorLimit, IsNamedByAWorkerThatCannotJoinOthersOverTcp) {
  const auto names = fabric_names();
  if (std::find(names.begin(), names.end(), "tcp") == names.end())
    GTEST_SKIP() << "no tcp fabric in this build";
  const std::string said = refusal_of_a_worker(
      {.fabric = "tcp", .patience = std::chrono::seconds(1), .rendezvous = "127.0.0.1:1"}, "1");
  EXPECT_TRUE(has(said, "rank 7 of 100 workers over tcp needs ")) << said;
  EXPECT_TRUE(has(said, "this process may have 60: expected more: ")) << said;
}

TEST(DescriptorLimit, IsNamedInErrorsOfTheSystem) {
  EXPECT_TRUE(has(system_error_text(EMFILE), "this process may have "))
      << system_error_text(EMFILE);
  EXPECT_EQ(system_error_text(ENOENT), "No such file or directory");
}

}  // namespace
}  // namespace skein

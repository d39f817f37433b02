// The door of a worker that may not have more files open.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/file_descriptor.h"
#include "core/loop.h"
#include "fabric/tcp/address.h"
#include "multiproc/process.h"
#include "skein/error.h"
#include "tcp_run.h"

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;
using skein::testing::contents;
using skein::testing::Folder;

rlim_t open_files() {
  std::filesystem::directory_iterator each("/proc/self/fd");
  return static_cast<rlim_t>(std::distance(begin(each), end(each)));
}

void limit_to(rlim_t number) {
  const rlimit limit{number, number};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(1);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Rank 0 has no descriptors left when the others come.
TEST(TcpDoor, NamesTheLimitOnOpenFilesWhenNobodyCanBeLetIn) {
  const TcpRun run;
  const Folder folder;
  std::fflush(nullptr);
  const pid_t rank_0 = fork();
  if (rank_0 == 0) {
    alarm(600);
    limit_to(open_files() + 16);
    TcpOptions options = run.options(0, 3);
    options.join_timeout = 10s;
    std::string said;
    options.say = [&](const std::string& text) { said += text + "\n"; };
    const SteadyClock clock;
    Loop loop(clock);
    try {
      make_tcp_fabric(loop, options);
    } catch (const IoError& error) {
      said += std::string("error: ") + error.what() + "\n";
    }
    std::ofstream(folder / "said") << said << std::flush;
    _exit(0);
  }
  const Address address = resolve(parse_host_port(run.options(0, 3).rendezvous)).front();
  std::vector<FileDescriptor> guests;
  int status = 0;
  while (::waitpid(rank_0, &status, WNOHANG) == 0) {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool connected = ::connect(socket.get(), address.raw(), address.length) == 0;
    if (connected && guests.size() < 40) guests.push_back(std::move(socket));
    std::this_thread::sleep_for(1ms);
  }
  const std::string said = contents(folder / "said");
  EXPECT_GE(guests.size(), 17u);
  EXPECT_TRUE(has(said, "nobody can connect to 127.0.0.1")) << said;
  const std::string error = said.substr(std::min(said.size(), said.find("error: ")));
  EXPECT_TRUE(has(error, "rank 1, 2 did not join the run in time")) << said;
  EXPECT_TRUE(has(error, "could not be let in: Too many open files (this process may have "))
      << said;
}

}  // namespace
}  // namespace skein::tcp

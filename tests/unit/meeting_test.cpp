// How workers of one host meet, with others about who should not keep them from it.
#include "fabric/local/rendezvous.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstring>
#include <future>
#include <thread>

#include "skein/error.h"

namespace skein::shm {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kRoot = 0, kStranger = 65534;

// More than a busy machine needs.
constexpr Duration kPatience = 120s;

// Both ranks of a run of two, in threads of this process.
void meet_both(const std::string& run_id, Duration limit = kPatience) {
  const auto join = [&](int rank) {
    const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
    const auto peers = meet(run_id, rank, 2, segment.get(), SteadyClock().now() + limit);
    EXPECT_EQ(peers.size(), 2u);
    for (const Peer& peer : peers) EXPECT_EQ(peer.pid, getpid());
  };
  auto other = std::async(std::launch::async, join, 1);
  join(0);
  other.get();
}

std::string fresh_id(const std::string& name) { return fmt::format("{}-{}", name, getpid()); }

std::pair<sockaddr_un, socklen_t> address(const std::string& run_id, int number = 0,
                                          uid_t user = kRoot) {
  const std::string name =
      fmt::format("skein-{}-{}{}", user, run_id, number == 0 ? "" : fmt::format("-{}", number));
  sockaddr_un value{};
  value.sun_family = AF_UNIX;
  std::memcpy(value.sun_path + 1, name.data(), name.size());
  return {value, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// A process of another user that does `body` until it is killed with the object. Needs root.
class Stranger {
 public:
  template <typename Body>
  explicit Stranger(Body body) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      if (setuid(kStranger) != 0) _exit(1);
      body([&] { (void)!write(ready[1], "r", 1); });
      _exit(0);
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Stranger() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  pid_t pid_ = -1;
};

class MeetingAmongStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != kRoot) GTEST_SKIP() << "needs root, to be another user";
  }
};

TEST_F(MeetingAmongStrangers, TurnsThemAwayAndGoesOn) {
  const std::string id = fresh_id("visited");
  const Stranger visitor([&](const auto& ready) {
    const auto [value, length] = address(id);
    ready();
    for (;;) {
      const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
      if (connect(socket, reinterpret_cast<const sockaddr*>(&value), length) == 0) {
        char byte;
        (void)!read(socket, &byte, 1);  // ends when it is turned away
      } else {
        usleep(200);
      }
      close(socket);
    }
  });
  const auto host = [&] {
    const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
    return meet(id, 0, 2, segment.get(), SteadyClock().now() + kPatience).size();
  };
  auto rank_0 = std::async(std::launch::async, host);
  std::this_thread::sleep_for(100ms);  // the stranger comes first
  const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
  EXPECT_EQ(meet(id, 1, 2, segment.get(), SteadyClock().now() + kPatience).size(), 2u);
  EXPECT_EQ(rank_0.get(), 2u);
}

void sit_on(const std::string& run_id, int names, const std::function<void()>& ready) {
  for (int number = 0; number < names; ++number) {
    const auto [value, length] = address(run_id, number);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(socket, reinterpret_cast<const sockaddr*>(&value), length) != 0) _exit(1);
    if (listen(socket, 1) != 0) _exit(1);
  }
  ready();
  for (;;) pause();
}

TEST_F(MeetingAmongStrangers, TakesAnotherNameThanTheirs) {
  const std::string id = fresh_id("taken");
  const Stranger squatter([&](const auto& ready) { sit_on(id, 3, ready); });
  meet_both(id);
}

TEST_F(MeetingAmongStrangers, SaysThatAllNamesAreTaken) {
  const std::string id = fresh_id("all-taken");
  const Stranger squatter([&](const auto& ready) { sit_on(id, 8, ready); });
  try {
    meet_both(id, 300ms);
    FAIL() << "they met";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("other users have taken"), std::string::npos)
        << error.what();
  }
}

TEST(Meeting, TakesIdsOfAnyLength) {
  for (const std::size_t length : {1, 70, 72, 73, 107, 5000}) {
    meet_both(fresh_id(std::string(length, 'x')));
    meet_both(fresh_id(std::string(length, 'y')));
  }
}

TEST(Meeting, TellsLongIdsApart) {
  const std::string long_id(300, 'x');
  const auto lonely = std::async(std::launch::async, [&] {
    const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
    EXPECT_THROW(meet(fresh_id(long_id + "a"), 0, 2, segment.get(), SteadyClock().now() + 300ms),
                 IoError);
  });
  const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
  EXPECT_THROW(meet(fresh_id(long_id + "b"), 1, 2, segment.get(), SteadyClock().now() + 300ms),
               IoError);
}

TEST(Meeting, RefusesASecondRank0) {
  const std::string id = fresh_id("twice");
  const FileDescriptor segment(memfd_create("segment", MFD_CLOEXEC));
  const auto meet_as = [&](int rank) {
    return meet(id, rank, 2, segment.get(), SteadyClock().now() + kPatience).size();
  };
  auto first = std::async(std::launch::async, meet_as, 0);
  const auto [value, length] = address(id, 0, geteuid());
  for (bool there = false; !there;) {
    const FileDescriptor visitor(::socket(AF_UNIX, SOCK_STREAM, 0));
    there = connect(visitor.get(), reinterpret_cast<const sockaddr*>(&value), length) == 0;
  }
  try {
    meet_as(0);
    ADD_FAILURE() << "two have the same name";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
  }
  EXPECT_EQ(meet_as(1), 2u) << "the first is none the worse for it";
  EXPECT_EQ(first.get(), 2u);
}

}  // namespace
}  // namespace skein::shm

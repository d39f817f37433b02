// How the workers of a host meet when one of them stands still on the way, and when they are many.
#include "fabric/local/rendezvous.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>

#include "skein/error.h"

namespace skein::shm {
namespace {

using namespace std::chrono_literals;

std::string run_named(const char* test) {
  return std::string("rendezvous-") + test + "-" + std::to_string(::getpid());
}

struct Address {
  sockaddr_un value{};
  socklen_t length = 0;
};

Address address_of(const std::string& run_id) {
  Address address;
  address.value.sun_family = AF_UNIX;
  const std::string name = "skein-" + std::to_string(::getuid()) + "-" + run_id;
  std::memcpy(address.value.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

FileDescriptor connect_to(const std::string& run_id) {
  const Address address = address_of(run_id);
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.value),
                   address.length) != 0)
    std::this_thread::sleep_for(1ms);
  return socket;
}

// Meets in a thread of its own; what it throws is kept.
struct Guest {
  Guest(const std::string& run_id, int rank, int size, Duration patience)
      : memory(::memfd_create("rendezvous", MFD_CLOEXEC)), thread([=, this] {
          try {
            peers = meet(run_id, rank, size, memory.get(), SteadyClock().now() + patience);
          } catch (const IoError& caught) {
            error = caught.what();
          }
        }) {}
  FileDescriptor memory;
  std::vector<Peer> peers;
  std::string error;
  std::thread thread;
};

TEST(Rendezvous, OneThatConnectsAndSaysNothingHoldsUpNobody) {
  const std::string run_id = run_named("silent");
  Guest host(run_id, 0, 2, 120s);
  const FileDescriptor silent = connect_to(run_id);
  Guest guest(run_id, 1, 2, 120s);
  host.thread.join();
  guest.thread.join();
  EXPECT_EQ(host.error + guest.error, "");
  EXPECT_EQ(guest.peers.size(), 2u);
}

TEST(Rendezvous, AHostThatStandsStillIsLeftAtTheDeadline) {
  const std::string run_id = run_named("stopped");
  const Address address = address_of(run_id);
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  // The first fills the queue of those who wait to be accepted, so that the next cannot connect.
  Guest first(run_id, 1, 3, 300ms), second(run_id, 2, 3, 300ms);
  first.thread.join();
  second.thread.join();
  EXPECT_NE(first.error, "");
  EXPECT_NE(second.error, "");
}

TEST(Rendezvous, AHostThatAnswersHalfIsLeftAtTheDeadline) {
  const std::string run_id = run_named("half");
  const Address address = address_of(run_id);
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.value), address.length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  Guest guest(run_id, 1, 2, 300ms);
  const FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(::write(socket.get(), "half", 4), 4);
  guest.thread.join();
  EXPECT_NE(guest.error.find("rank 0"), std::string::npos) << guest.error;
}

// More descriptors than one message may carry.
TEST(Rendezvous, ThreeHundredWorkersMeet) {
  constexpr int kWorkers = 300;
  const std::string run_id = run_named("many");
  std::vector<pid_t> children;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      int failed = 1;
      try {
        const FileDescriptor memory(::memfd_create("rendezvous", MFD_CLOEXEC));
        const auto peers = meet(run_id, rank, kWorkers, memory.get(), SteadyClock().now() + 300s);
        failed = 0;
        for (const Peer& peer : peers)
          if (!peer.segment.valid() || !peer.process.valid()) failed = 2;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
      }
      ::_exit(failed);
    }
    children.push_back(child);
  }
  int wrong = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    wrong += status == 0 ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace skein::shm

// Shared memory of one host: what it costs, and that peers cannot be harmed by it.
#include "fabric/local/segment.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::shm {
namespace {

constexpr int kRanks = 4;

FileDescriptor same_file(const OwnSegment& segment) { return FileDescriptor(::dup(segment.fd())); }

// Of all mappings of shared files of this process: flags as the kernel writes them.
std::vector<std::string> flags_of_mappings() {
  std::ifstream maps("/proc/self/smaps");
  std::vector<std::string> flags;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:skein") != std::string::npos) ours = true;
    if (ours && line.starts_with("VmFlags:")) {
      flags.push_back(line + " ");
      ours = false;
    }
  }
  return flags;
}

std::int64_t address_space() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

TEST(Segment, StaysOutOfCoreDumps) {
  OwnSegment own(kRanks);
  const Span memory = own.allocate(1 << 20);
  PeerSegment peer(same_file(own), 1, kRanks);
  peer.at(*own.place_of(memory), Type::f32);
  peer.mailbox(2, 5);
  const auto all = flags_of_mappings();
  EXPECT_EQ(all.size(), 5u);
  for (const std::string& flags : all) EXPECT_NE(flags.find(" dd "), std::string::npos) << flags;
}

// A host's memory is no measure: only what is allocated takes addresses, and mailboxes when used.
TEST(Segment, TakesFewAddressesHoweverManyRanksAndChannels) {
  constexpr int kMany = 256;
  const std::int64_t before = address_space();
  OwnSegment own(kMany);
  std::vector<std::unique_ptr<PeerSegment>> peers;
  for (int r = 1; r < kMany; ++r)
    peers.push_back(std::make_unique<PeerSegment>(same_file(own), r, kMany));
  for (auto& peer : peers) peer->mailbox(0, 5);
  EXPECT_LT(address_space() - before, std::int64_t{2} << 30);
}

TEST(Segment, FailsWithAClearErrorWhereAddressesAreLimited) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto limit = static_cast<rlim_t>(address_space()) + (rlim_t{256} << 20);
    const rlimit small{limit, limit};
    ::setrlimit(RLIMIT_AS, &small);
    int result = 1;
    try {
      OwnSegment own(kRanks);
      fill(own.allocate(10 << 20), 1);  // 40 MB fit
      result = 2;
      own.allocate(std::size_t{1} << 30);
    } catch (const Error& error) {
      if (result == 2)
        result = std::string(error.what()).find("ulimit") != std::string::npos ? 0 : 3;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Segment, FailsWithAClearErrorWhereFilesAreLimited) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small{rlim_t{1} << 30, rlim_t{1} << 30};
    ::setrlimit(RLIMIT_FSIZE, &small);
    int result = 1;
    try {
      OwnSegment own(kRanks);
      own.allocate(10 << 20);
      result = 2;
      own.allocate(std::size_t{1} << 30);
    } catch (const ConfigError& error) {
      if (result == 2)
        result = std::string(error.what()).find("ulimit -f") != std::string::npos ? 0 : 3;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Segment, KnowsWhatWasTakenAndNotTouched) {
  constexpr std::size_t kFloats = std::size_t{8} << 20;  // 32 MiB
  OwnSegment own(kRanks);
  PeerSegment peer(same_file(own), 1, kRanks);
  EXPECT_EQ(peer.promised(), 0u);
  const Span memory = own.allocate(kFloats);
  EXPECT_NEAR(static_cast<double>(peer.promised()), 32 << 20, 1 << 20);
  fill(memory.at({0, kFloats / 2}), 1);
  EXPECT_NEAR(static_cast<double>(peer.promised()), 16 << 20, 1 << 20);
  fill(memory, 1);
  EXPECT_EQ(peer.promised(), 0u);
  own.release(memory);
  EXPECT_EQ(peer.promised(), 0u);
}

TEST(Segment, CannotShrinkUnderAPeer) {
  OwnSegment own(kRanks);
  EXPECT_NE(::ftruncate(own.fd(), 4096), 0);
  const FileDescriptor open(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open.get(), off_t{1} << 30), 0);
  try {
    PeerSegment peer(FileDescriptor(::dup(open.get())), 3, kRanks);
    FAIL() << "a file that can shrink was accepted";
  } catch (const IoError& error) {
    EXPECT_EQ(error.peer(), 3);
  }
}

TEST(Segment, APlaceOutsideOfItIsAnErrorThatNamesThePeer) {
  OwnSegment own(kRanks);
  const Place good = *own.place_of(own.allocate(5000));
  PeerSegment peer(same_file(own), 2, kRanks);
  EXPECT_EQ(peer.at(good, Type::f32).count, 5000u);
  const std::uint64_t huge = ~std::uint64_t{0};
  std::vector<Place> wrong(7, good);
  wrong[0].bytes = huge - 3;
  wrong[1].offset = huge - 3;
  wrong[2].part = huge - 4095;
  wrong[3].part += 1;
  wrong[4].offset = 2;
  wrong[5] = {good.part + (std::uint64_t{1} << 40), 4096, 0, 4};
  wrong[6] = {good.part + 4096, huge - 4095, 0, 4};
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    try {
      peer.at(wrong[i], Type::f32);
      ADD_FAILURE() << "place " << i << " was accepted";
    } catch (const IoError& error) {
      EXPECT_EQ(error.peer(), 2);
    }
  }
}

// Who gives up memory that a stopped peer may still write to.
TEST(Segment, MemoryThatMovesAwayKeepsAddressAndContentsAndHearsNoMoreOfPeers) {
  OwnSegment own(kRanks);
  const Span memory = own.allocate(10000);
  fill(memory, 3);
  PeerSegment peer(same_file(own), 2, kRanks);
  const Span theirs = peer.at(*own.place_of(memory), Type::f32);
  fill(theirs.at({0, 10}), 4);
  own.move_away(memory);
  fill(theirs, 5);
  EXPECT_EQ(memory.host()[0], 4);
  EXPECT_EQ(memory.host()[9999], 3);
  fill(memory, 6);
  EXPECT_EQ(theirs.host()[0], 5);
  EXPECT_EQ(peer.at(*own.place_of(memory), Type::f32).host()[0], 6);
}

TEST(Segment, WhatWasReleasedIsUsedAgainAndZero) {
  OwnSegment own(kRanks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100000}}) {
    const Span first = own.allocate(count);
    fill(first, 1);
    own.release(first);
    const Span second = own.allocate(count);
    EXPECT_EQ(second.data, first.data);
    EXPECT_TRUE(std::ranges::all_of(second.host(), [](float x) { return x == 0; }));
  }
}

// The user's thread allocates arenas while the courier stages messages.
TEST(Segment, IsAllocatedFromSeveralThreads) {
  OwnSegment own(kRanks);
  std::atomic<int> wrong{0};
  const auto work = [&](float mine) {
    for (std::size_t i = 0; i < 2000; ++i) {
      const Span memory = own.allocate(1 + i % 3000);
      fill(memory, mine);
      if (!own.place_of(memory)) ++wrong;
      for (const float x : memory.host()) wrong += x == mine ? 0 : 1;
      own.release(memory);
    }
  };
  std::thread other(work, 1.0F);
  work(2.0F);
  other.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace skein::shm

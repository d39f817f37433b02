// A worker's shared memory: one anonymous file (memfd) that holds its mailboxes and every arena it
// allocates, mapped by all workers of the run on this host.
//
// The file has no name and is freed by the kernel with the last process that has it open, however
// those processes end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/file_descriptor.h"
#include "core/span.h"
#include "fabric/fabric.h"
#include "fabric/local/expulsions.h"

namespace skein::local {

// Messages from one worker to another on one channel that may be under way at a time.
inline constexpr std::size_t kMailDepth = 32;
inline constexpr int kMostRanks = kMostWorkersOfAHost;

// Where data lies in the poster's segment, and when it left. Times are on the host's clock.
struct Letter {
  std::uint64_t offset;
  std::uint64_t count;
  std::int64_t left_at_ns;  // emulated links only: when its first byte left
};

// Written by the sender; `taken` is written by the receiver. Counts only grow.
struct Mailbox {
  std::atomic<std::uint64_t> posted;
  std::atomic<std::uint64_t> taken;
  Letter letters[kMailDepth];
};

// What a worker offers to all others in a collective. Two, used alternately: a worker may start the
// next collective while a peer has yet to see that the last one is over.
struct Offer {
  std::uint64_t kind;
  std::uint64_t offset;
  std::uint64_t count;
  std::uint64_t root;
};
struct Desk {
  std::atomic<std::uint64_t> offered;  // collectives offered so far
  std::atomic<std::uint64_t>
      finished;  // collectives in which this worker is done with peers' memory
  Offer offers[2];
};

enum class Presence : std::uint32_t { here, left, failed };

// The start of every segment.
struct Header {
  std::atomic<std::uint32_t> doorbell;  // a futex: rises with everything that may concern the owner
  std::atomic<std::uint32_t> sleepers;  // not 0: a thread may sleep on it
  std::atomic<Presence> presence;
  char failure[500];      // written before presence becomes failed
  Expulsions expulsions;  // rank 0's are the run's
  Desk desks[kChannels];
  Mailbox mail[kMostRanks][kChannels];  // to each rank, on each channel
};

// One mapped segment, ours or a peer's.
class Segment {
 public:
  static Segment create();                // a new one, empty
  static Segment map(FileDescriptor fd);  // a peer's
  Segment(Segment&&) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();

  int fd() const { return fd_.get(); }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }
  float* at(std::uint64_t offset) const { return reinterpret_cast<float*>(base_ + offset); }
  bool contains(const void* data, std::size_t bytes) const;
  std::uint64_t offset_of(const void* data) const;

  // Zeroed memory, 64-byte aligned. Throws Error when the segment is full.
  Span allocate(std::size_t count);
  void release(Span memory);

 private:
  Segment(FileDescriptor fd, std::size_t bytes);

  FileDescriptor fd_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t used_ = 0;
  std::map<std::size_t, std::vector<std::uint64_t>> free_;  // block size → offsets
};

}  // namespace skein::local

// A worker's shared memory: one anonymous file (memfd) that holds its mailboxes and every arena it
// allocates. Each process maps the parts that it uses, when it first uses them.
//
// The file has no name and is freed by the kernel with the last process that has it open, however
// those processes end. It only grows: a peer can rely on what it has mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "core/file_descriptor.h"
#include "core/sharing.h"
#include "core/span.h"
#include "fabric/fabric.h"
#include "fabric/local/expulsions.h"

namespace skein::shm {

// Messages from one worker to another on one channel that may be under way at a time.
inline constexpr std::size_t kMailDepth = 32;

inline constexpr std::size_t kPage = 4096;

// Where values lie in a worker's file: in a part of it that is mapped as a whole. On a device: in a
// block of its memory that is opened as a whole.
struct Place {
  std::uint64_t part;  // where the part begins; the block's number
  std::uint64_t part_bytes;
  std::uint64_t offset;  // of the first value, from there
  std::uint64_t bytes;
};

// What was sent, and when it left. Times are on the host's clock.
struct Letter {
  Place place;
  std::int64_t left_at_ns;  // emulated links only: when its first byte left
  std::uint64_t ready;      // of a device: the sender's count from which on it is there; else 0
};

// Written by the sender, but for what the receiver says. Counts only grow.
struct alignas(64) Mailbox {
  std::atomic<std::uint64_t> posted;
  std::atomic<std::uint32_t> withdrawn;  // 1: what has not been taken is not to be taken any more
  std::atomic<std::uint64_t> taken;      // by the receiver
  std::atomic<std::uint32_t> refused;    // by the receiver: it takes nothing more
  std::atomic<std::uint64_t> read_by;    // the receiver's count from which on it has read the taken
  Letter letters[kMailDepth];
};

// What a worker offers to all others in a collective. Two, used alternately: a worker may start the
// next collective while a peer has yet to see that the last one is over.
struct Offer {
  Place place;
  std::uint32_t kind, root;
  std::uint64_t ready;  // as in a letter
};
struct alignas(64) Desk {
  std::atomic<std::uint64_t> offered;   // collectives offered so far
  std::atomic<std::uint64_t> finished;  // in which this worker is done with peers' memory
  std::atomic<std::uint64_t> given_up;  // not 0: from this one on, its memory is not to be used
  std::atomic<std::uint64_t> writing;   // the one in which it writes into peers' memory just now
  Offer offers[2];

  // On devices: the same steps, and from which count on the worker's queue has made them. A value
  // is overwritten in the next collective, when all have offered: so all have read it.
  std::atomic<std::uint64_t> summed;  // collectives in which its part is the sum
  std::uint64_t summed_at, finished_at;
};

// Blocks of a device that a worker can have, as its peers know them.
inline constexpr std::size_t kMostBlocks = 4096;

// A page of its own: devices write to it.
struct alignas(kPage) CountPage {
  SharedCount count;  // rises as the worker's queue comes to what it has told its peers of
};

enum class Presence : std::uint32_t { here, left, failed };

// The start of every file.
struct Header {
  std::atomic<std::uint32_t> doorbell;  // a futex: rises with everything that may concern the owner
  std::atomic<std::uint32_t> sleepers;  // not 0: a thread may sleep on it
  std::atomic<Presence> presence;
  std::atomic<std::int64_t> progress_ns;  // the last sign of progress, on the host's clock
  std::atomic<std::uint64_t> allocated;   // bytes of large blocks that are in use, touched or not
  char failure[500];                      // written before presence becomes failed
  Expulsions expulsions;                  // rank 0's are the run's
  Desk desks[kMostChannels];
  SharedBlock blocks[kMostBlocks];  // by number; each is written before anybody is told of it
  CountPage device;
};

// Whatever was read of peers' memory was read before what is read after this: a fence, as an
// operation that thread sanitizers understand too.
inline void end_reading(Header& own) { own.progress_ns.fetch_add(0, std::memory_order_seq_cst); }

// The mailboxes of one block of channels to one rank.
struct MailRow {
  Mailbox boxes[kChannelBlock];
};

class SharedFile {
 public:
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  ~SharedFile();

  int fd() const { return fd_.get(); }
  Header& header() const { return *header_; }
  Mailbox& mailbox(int to, Channel channel);

  // Bytes that its owner has allocated and nobody has touched: they will be asked of the host yet.
  std::uint64_t promised() const;

 protected:
  SharedFile(FileDescriptor fd, int ranks);

  // Bytes before the first that can be allocated, with mailboxes for so many ranks.
  static std::size_t reserved(int ranks);

  // Maps [offset, offset + bytes), which begins and ends on pages. Throws ConfigError where
  // addresses are limited (ulimit -v).
  std::byte* map(std::uint64_t offset, std::size_t bytes, void* at = nullptr) const;

 private:
  FileDescriptor fd_;
  int ranks_;
  Header* header_;
  std::unordered_map<std::uint64_t, MailRow*> rows_;
};

// Rounds up to whole pages.
constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace skein::shm

// Packets to and from all ranks of a communicator.
//
// MPI never sees memory of anybody else: a packet leaves from a copy and arrives in memory of the
// mail's own, which is there for it before it comes. So nobody has to wait for MPI to let go of his
// memory. Not thread-safe; nothing here blocks, but for the destructor, for a limited time.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fabric/mpi/packet.h"
#include "fabric/part_memory.h"

namespace skein::mpi {

// What MPI says of an error of its own.
std::string text_of(int code);

// A packet that has come.
struct Arrived {
  int from;
  const Header& header;
  const std::byte* body;
  std::size_t length;
  bool may_wait;  // until all that can go on now has had its turn
};

class Mail {
 public:
  // The communicator is the mail's own from now on.
  explicit Mail(MPI_Comm communicator);
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;
  ~Mail();

  int rank() const { return rank_; }
  int size() const { return size_; }

  void send(int to, Header header, const std::byte* body = nullptr, std::size_t length = 0);

  // Packets to a rank that MPI has not let go of.
  std::size_t under_way(int to) const { return sent_[static_cast<std::size_t>(to)].size(); }
  bool under_way() const;

  // Hands over what has come, in the order in which each rank sent it. `take` may answer that it
  // would rather have a packet that may wait next time; then the rest waits too. True: something
  // has moved, or waits.
  using Take = std::function<bool(const Arrived&)>;
  bool poll(const Take& take);

  // Ends all receives; whether all that was sent or received has come to its end. Nothing comes
  // after this.
  bool close();

  // Why nothing can be sent or received any more, or empty.
  const std::string& trouble() const { return trouble_; }

  boxed::PartMemory& memory() { return memory_; }

 private:
  using Buffer = boxed::PartMemory::Buffer;
  struct Sent {
    MPI_Request request;
    Buffer packet;
    std::size_t bytes;
  };
  // Ahead of one that is still on its way.
  struct Early {
    Buffer packet;
    std::size_t bytes;
  };
  // A receive that has ended and has yet to be looked at.
  struct Ready {
    std::size_t slot;
    int from;
    std::size_t bytes;
  };

  void test_sent();
  void test_received();
  bool hand_over(const Ready& ready, const Take& take);
  void hand_over_early(int from, const Take& take);
  bool check(int code, const char* what);

  MPI_Comm communicator_;
  int rank_ = 0, size_ = 1;
  std::string trouble_;
  bool moved_ = false, closed_ = false;
  boxed::PartMemory memory_{kWholePacket, kWholePacket / 4, 32};
  std::vector<Buffer> slots_;
  std::vector<MPI_Request> receives_;  // one for each slot, used again and again
  std::deque<Ready> ready_;
  int hesitations_ = 0;                                // of whom the first of them is for
  std::vector<std::deque<Sent>> sent_;                 // by rank
  std::vector<std::uint64_t> next_, expected_;         // sequences, by rank
  std::vector<std::map<std::uint64_t, Early>> early_;  // by rank, by sequence
};

}  // namespace skein::mpi

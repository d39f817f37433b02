// What a worker's queue and those of its peers on this host do together: it reads their memory on
// devices where it lies, and waits for their counts.
//
// A worker has one count. Whatever its peers are to wait for is a value of it, which its queue
// comes to in its order; so who waits for a value waits for all before it. A value is told to peers
// when it has been put on the queue: waits are only ever for what was put somewhere earlier, and no
// ring of queues can wait for each other.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/queue.h"
#include "core/sharing.h"
#include "fabric/local/shared_file.h"

namespace skein {

// Not thread-safe.
class DeviceSide {
 public:
  // `headers` of all ranks. `died` says whether a peer's process has ended. Throws Error where
  // counts cannot be used.
  DeviceSide(Queue& queue, std::vector<shm::Header*> headers, int rank,
             std::function<bool(int peer)> died);
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  // Waits until the queue has come to everything that is about peers.
  ~DeviceSide();

  Queue& queue() const { return queue_; }

  // The value of the own count behind all that is on the queue.
  std::uint64_t record();

  // What is put on the queue from now on comes after that value of the peer's count.
  void wait_for(int peer, std::uint64_t value);
  bool reached(int peer, std::uint64_t value) const;

  // Those who died will not raise their counts any more: whoever waits for them, in any process, is
  // let go. Then reached() is false of them.
  void let_go_of_the_dead();

  // The same for all, when nothing they say is believed any more.
  void let_go_of_all();

  // Memory that peers can open, and where it lies for them; nullopt: they cannot.
  std::unique_ptr<Memory> allocate(std::size_t count, Type type);
  std::optional<shm::Place> place_of(Span memory);

  // The peer's values there. Throws IoError that names it (as `name`) if it has no such memory, or
  // that cannot be opened.
  Span at(int peer, int name, const shm::Place& place, Type type);

  // Two copies of up to so many bytes, of collectives on a channel: never used for anything else.
  Span copies(Channel channel, std::size_t bytes);

 private:
  struct Peer {
    std::uint64_t awaited = 0;                    // the last value that the queue was made to wait
    std::vector<std::unique_ptr<Memory>> opened;  // by number
  };
  SharedCount& count(int rank) const {
    return headers_[static_cast<std::size_t>(rank)]->device.count;
  }

  Queue& queue_;
  Sharing& sharing_;
  std::vector<shm::Header*> headers_;
  int rank_;
  std::function<bool(int)> died_;
  std::uint64_t value_;
  std::vector<bool> told_;  // blocks whose names the peers have
  std::vector<Peer> peers_;
  std::unordered_map<Channel, std::unique_ptr<Memory>> copies_;
};

}  // namespace skein

// What lets processes of one host work on each other's memory of devices: blocks that others can
// open, and counts that the queues of all of them raise and wait for.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/arena.h"

namespace skein {

// A block of memory of a device, as its process tells others of it: plain bytes.
struct SharedBlock {
  std::array<std::byte, 64> name{};
  std::uint64_t bytes = 0;
};

// Where values lie in the blocks of a process, which it numbers from 0.
struct SharedPlace {
  std::uint32_t number = 0;
  SharedBlock block;
  std::uint64_t offset = 0;  // bytes from the block's begin
};

// A number in memory of the host that processes share. It only rises, from 0.
using SharedCount = std::atomic<std::uint64_t>;

// Of one queue, which it belongs to. One thread at a time, but for allocate() and place_of().
// Everything here that cannot be done throws Error that says why.
class Sharing {
 public:
  virtual ~Sharing() = default;

  // As Queue::allocate(), of memory that other processes can open. It is used again when it is
  // given back, in the order of the queue, and never returned to the device while the process
  // lives: a peer may have it open.
  virtual std::unique_ptr<Memory> allocate(std::size_t count, Type type) = 0;

  // Nullopt: others cannot open it.
  virtual std::optional<SharedPlace> place_of(Span memory) const = 0;

  // A block of another process, as bytes on this queue's device, for as long as the result lives;
  // what was put on the queue before may still use it then.
  virtual std::unique_ptr<Memory> open(const SharedBlock& block) = 0;

  // Memory of allocate() that a peer may read at any time: not used again.
  void keep(std::unique_ptr<Memory> memory) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(std::move(memory));
  }

  // A count must be in use before it is raised or waited for, and nothing on the queue may be about
  // it any more when that ends. Its page holds nothing else.
  virtual void use(SharedCount& count) = 0;
  virtual void forget(SharedCount& count) = 0;

  // In the order of the queue: what was put there before is done, and seen by all who see the
  // count.
  virtual void raise(SharedCount& count, std::uint64_t value) = 0;

  // What is put on the queue from now on is done when the count is `least` or more. Does not wait
  // itself.
  virtual void wait_for(SharedCount& count, std::uint64_t least) = 0;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> kept_;
};

}  // namespace skein

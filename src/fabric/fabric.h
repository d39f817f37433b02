// Moves vectors between the workers of one training run.
//
// Operations on one channel run in the order in which they were started; different channels are
// independent. All ranks must start the same collectives on a channel in the same order, with the
// same sizes; a channel carries either collectives or point-to-point messages. An operation that
// fails or is cancelled leaves its channel unusable: later ones on it throw.
// With one rank every collective is a no-op.
// Not thread-safe: only what runs on the loop calls it. Every operation ends by its deadline, with
// IoError that names the peer waited for, never by hanging.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/event_source.h"
#include "core/loop.h"
#include "core/span.h"

namespace skein {

using Channel = int;
inline constexpr Channel kChannels = 16;

// Workers of one host; whoever starts or joins them refuses more.
inline constexpr int kMostWorkersOfAHost = 64;

// What travels in a collective: float32, or bfloat16 in half the bytes (fabric/half.h says what is
// rounded).
enum class Wire : std::uint8_t { f32, bf16 };

// What a receiver does with what arrives.
enum class Combine : std::uint8_t { copy, add };

// The part of `count` elements that rank r of `size` holds after a reduce-scatter. Parts start on
// cache lines; the last ones may be shorter or empty.
Range shard(std::size_t count, int size, int rank);

// Into what pieces a ring cuts the part that a rank sends on: pieces follow each other, so that the
// next rank need not wait for the whole.
struct Chunking {
  // Small enough that a piece's transfer hides the wake-up of the next rank, large enough that
  // there are few of them.
  std::size_t least = 16384;  // elements of a piece
  std::size_t most = 16;      // pieces of a part
  // Messages to different ranks that are under way at once where each rank sends to each: enough
  // that the next one leaves while the peer has yet to take the last.
  std::size_t ahead = 2;
};

// One operation under way: what an error message needs to say of it.
struct Operation {
  const char* name;
  Channel channel;
  std::uint64_t sequence;  // how many were started on this channel before it
  Deadline deadline;
};
std::string describe(const Operation& operation);

// Is told when an operation starts to wait for a peer (-1: for several) and when the wait is over.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void waiting(const char* operation, int peer) = 0;
  virtual void resumed() = 0;
};

class Fabric {
 public:
  explicit Fabric(Loop& loop);
  virtual ~Fabric();

  virtual std::string name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Zeroed memory that peers reach without a staging copy. Operations on other memory work too.
  virtual std::unique_ptr<Memory> allocate(std::size_t count) { return allocate_on_heap(count); }

  virtual Chunking chunking() const { return {}; }

  // Sums `buffer` over all ranks; rank r ends with the sum in shard(count, size, r) of its buffer.
  // The rest of the buffer is undefined afterwards.
  Task<> reduce_scatter(Channel channel, Span buffer, Deadline deadline, Wire wire = Wire::f32);

  // Every rank's own shard of `buffer` is copied to all others.
  Task<> all_gather(Channel channel, Span buffer, Deadline deadline, Wire wire = Wire::f32);

  // Sums `buffer` over all ranks: the bits of reduce_scatter followed by all_gather, on each.
  Task<> all_reduce(Channel channel, Span buffer, Deadline deadline, Wire wire = Wire::f32);

  // The same in O(log N) steps, for messages where latency is all that counts. The same bits on
  // each rank, but the order of the sum is another.
  Task<> all_reduce_small(Channel channel, Span buffer, Deadline deadline);

  Task<> broadcast(Channel channel, Span buffer, int root, Deadline deadline);
  Task<> barrier(Channel channel, Deadline deadline);

  // Point to point, in order per channel, peer and direction; sizes must match. send() ends when
  // `data` may change.
  Task<> send(Channel channel, int peer, Span data, Deadline deadline);
  Task<> receive(Channel channel, int peer, Span into, Deadline deadline);

  // Sends `out` to `peer` while receiving `in` from it. Both sides call it.
  Task<> exchange(Channel channel, int peer, Span out, Span in, Deadline deadline);

  Loop& loop() const { return loop_; }
  std::uint64_t bytes_sent() const { return bytes_sent_; }
  void observe(WaitObserver* observer) { observer_ = observer; }

  // Decides, for all ranks and for good, that `peer` is lost. False: it has been decided before
  // that this rank is. Of two that take each other for lost one gets false. Nullopt: nobody can
  // decide that in this fabric, and ranks can only tell each other.
  virtual std::optional<bool> expel(int peer);
  virtual bool expelled(int rank) const;

  // Tells the peers why this rank is about to end: they get IoError with this text.
  virtual void fail(const std::string&) {}

  // Where the loop's thread may sleep; null when nothing ever arrives from outside.
  virtual EventSource* events() { return nullptr; }

  // The primitives that collectives are written on. start_send() ends when the message is under
  // way; `data` must not change until a finish_sends() to that peer has ended.
  virtual Task<> start_send(const Operation& operation, int peer, Span data) = 0;
  virtual Task<> finish_sends(const Operation& operation, int peer) = 0;
  virtual Task<> receive_into(const Operation& operation, int peer, Span into, Combine combine) = 0;

 protected:
  // The collectives, called in turn and only when size() > 1. The defaults use the primitives.
  virtual Task<> run_reduce_scatter(const Operation& operation, Span buffer);
  virtual Task<> run_all_gather(const Operation& operation, Span buffer);
  virtual Task<> run_all_reduce(const Operation& operation, Span buffer);
  virtual Task<> run_all_reduce_small(const Operation& operation, Span buffer);
  virtual Task<> run_broadcast(const Operation& operation, Span buffer, int root);

  void count_sent(std::size_t bytes) { bytes_sent_ += bytes; }
  WaitObserver* observer() const { return observer_; }

 private:
  struct Turns;  // the queue of one channel
  class Turn;

  Operation begin(const char* name, Channel channel, Deadline deadline);
  Task<> in_turn(Operation operation, Task<> body);

  Loop& loop_;
  WaitObserver* observer_ = nullptr;
  std::uint64_t bytes_sent_ = 0;
  std::array<std::unique_ptr<Turns>, kChannels> turns_;
};

}  // namespace skein

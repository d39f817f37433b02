// Moves vectors between the workers of one training run.
//
// Operations on one channel run in the order in which they were started; different channels are
// independent. All ranks must start the same collectives on a channel in the same order, with the
// same sizes; a channel carries either collectives or point-to-point messages. A collective that
// fails or is cancelled leaves its channel unusable: later ones on it throw. A message that does so
// leaves that direction between the two ranks unusable on that channel, for both of them.
// With one rank every collective is a no-op.
//
// Memory belongs to an operation from its start to its end, however it ends. When it has ended, no
// peer changes that memory, and no peer takes what is written there later for what was sent.
//
// On memory of a device an operation that has ended is ordered, not complete: what is put on the
// loop's queue from then on finds its result, and nobody else need do yet (core/queue.h).
//
// Not thread-safe: only what runs on the loop calls it, but for allocate(), progressed() and
// bytes_sent(). Every operation ends within its limit, with IoError that names the peer waited for,
// never by hanging.
//
// Whatever differs between fabrics is pure virtual here. A fabric that carries messages itself
// derives from CarrierFabric (fabric/carrier_fabric.h), one that is made of others from
// ForwardingFabric (fabric/forwarding.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/event_source.h"
#include "core/loop.h"
#include "core/queue.h"
#include "core/span.h"
#include "fabric/collectives.h"
#include "fabric/operation.h"
#include "fabric/traits.h"
#include "fabric/turns.h"
#include "skein/error.h"

namespace skein {

class Carrier;

// Is told when an operation starts to wait for a peer (-1: for several) and when the wait is over.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void waiting(const char* operation, int peer) = 0;
  virtual void resumed() = 0;
};

class Fabric {
 public:
  // `collectives` says what collectives do; it may be a part of the fabric.
  Fabric(Loop& loop, int rank, int size, Collectives& collectives)
      : loop_(loop), rank_(rank), size_(size), collectives_(collectives), turns_(*this) {}
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  virtual ~Fabric() = default;

  Loop& loop() const { return loop_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  virtual std::string name() const = 0;
  virtual Traits traits() const = 0;

  // Zeroed memory that operations use without a staging copy where there is a way; operations on
  // other memory work too. Bytes, for messages, are in memory of the host; values are on the device
  // of the loop's queue, if it has one. Any thread. Throws ConfigError, with what is needed and
  // what there is, where there is not so much.
  std::unique_ptr<Memory> allocate(std::size_t count, Type type = Type::f32);

  // The same where `like` is: on the host, on a device, or absent.
  std::unique_ptr<Memory> allocate_like(Span like, std::size_t count, Type type);

  // The first of kChannelBlock channels that nobody has used. All ranks ask in the same order.
  // Throws ConfigError when there are none left.
  Channel allot_channels();

  // The part of `count` elements that `rank` holds after a reduce-scatter.
  Range part(std::size_t count, int rank) const { return collectives_.part_of(count, rank); }

  // Sums `buffer` over all ranks; each ends with the sum in its part of its buffer. The rest of the
  // buffer is undefined afterwards.
  Task<> reduce_scatter(Channel channel, Span buffer, Limit limit, Wire wire = Wire::f32);

  // Every rank's own part of `buffer` is copied to all others.
  Task<> all_gather(Channel channel, Span buffer, Limit limit, Wire wire = Wire::f32);

  // Sums `buffer` over all ranks: the bits of reduce_scatter followed by all_gather, on each.
  Task<> all_reduce(Channel channel, Span buffer, Limit limit, Wire wire = Wire::f32);

  // What workers tell each other: `record`, bytes of the host, becomes the merge of all ranks'
  // records, in their order. O(log N) steps, in which latency is all that counts. `merge` must
  // outlive the task; with one rank it is not called.
  Task<> combine(Channel channel, Span record, const Merge& merge, Limit limit);

  Task<> broadcast(Channel channel, Span buffer, int root, Limit limit);
  Task<> barrier(Channel channel, Limit limit);

  // Point to point, in order per channel, peer and direction; sizes must match. send() ends when
  // `data` may change.
  Task<> send(Channel channel, int peer, Span data, Limit limit);
  Task<> receive(Channel channel, int peer, Span into, Limit limit);

  // Sends `out` to `peer` while receiving `in` from it. Both sides call it.
  Task<> exchange(Channel channel, int peer, Span out, Span in, Limit limit);

  // Sends `data` without waiting for the peer to take it: the fabric keeps a copy until it has.
  void send_and_forget(Channel channel, int peer, Span data);

  // This worker has come further, with a step, say: those who wait for it go on waiting. Any
  // thread.
  void progressed() { pass_on(loop_.now()); }

  // When it last has, or one that it waits for, and what it learns of that from elsewhere. A sign
  // that is only passed on keeps its time, so that workers who wait for each other cannot keep each
  // other waiting for ever. pass_on(): any thread.
  virtual Time latest_sign() const = 0;
  virtual void pass_on(Time sign) = 0;

  // Decides, for all ranks and for good, that `peer` is lost. False: it has been decided before
  // that this rank is. Of two that take each other for lost one gets false. Nullopt: nobody can
  // decide that in this fabric, and ranks can only tell each other.
  virtual std::optional<bool> expel(int peer) = 0;
  virtual bool expelled(int rank) const = 0;

  // Tells the peers why this rank is about to end: they get IoError with this text.
  virtual void fail(const std::string& reason) = 0;

  virtual std::uint64_t bytes_sent() const = 0;
  virtual void observe(WaitObserver* observer) = 0;

  // Before the first operation on memory of a device, and again when the loop has got another
  // queue: all ranks find out together how they can reach each other's. Nothing else on such memory
  // is under way meanwhile. Without it operations on it go through the host.
  virtual Task<> meet_on_device(Limit limit) = 0;

  // Why memory of devices goes through the host where it need not have; empty where there is
  // nothing to say.
  virtual std::string why_staged() const = 0;

  // Where the loop's thread may sleep; null when nothing ever arrives from outside.
  virtual EventSource* events() = 0;

  // The primitives that collectives are written on. start_send() ends when the message is under
  // way; `data` must not change until a finish_sends() to that peer has ended. Messages of
  // collectives are taken back with the collective; others are started by a Sending.
  Task<> start_send(const Operation& operation, int peer, Span data);
  Task<> finish_sends(const Operation& operation, int peer);
  Task<> receive_into(const Operation& operation, int peer, Span into, Combine combine);

  // Of a collective that has begun all of its messages, the last one to receive included: the next
  // one on its channel may begin before this one has ended, since its messages come behind. So the
  // network need not stand still from one to the next.
  void next_may_begin(const Operation& operation) { turns_.next_may_begin(operation); }

  // Takes back what peers have not taken of an operation's messages; and closes its channel to one
  // peer, which then waits for nothing more on it.
  void give_up_sends(const Operation& operation);
  void give_up_sends_to(const Operation& operation, int peer);

  // Messages to one peer, from the first start() to the end of finish(). When it is destroyed
  // before that, what the peer has not taken is taken back.
  class Sending {
   public:
    Sending(Fabric& fabric, const Operation& operation, int peer)
        : fabric_(fabric), operation_(operation), peer_(peer) {}
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;
    ~Sending();
    Task<> start(Span data);
    Task<> finish();

   private:
    Fabric& fabric_;
    Operation operation_;
    int peer_;
    bool open_ = false;
  };

  // Who carries messages to and from a peer on a channel, and what the two are called there. A
  // fabric that is made of others carries none: two that did would each count the same messages.
  struct Route {
    Carrier& carrier;
    int peer;
    Channel channel;
  };
  virtual Route route(int peer, Channel channel) = 0;

  // The part of allocate() that is about memory of the host, or of the device of the loop's queue.
  virtual std::unique_ptr<Memory> allocate_on(Device::Kind kind, std::size_t count, Type type) = 0;

 private:
  Route checked_route(int peer, Channel channel, const char* direction);
  Task<> deliver(Operation operation, int peer, std::unique_ptr<Memory> message);

  Loop& loop_;
  const int rank_, size_;
  Collectives& collectives_;
  Turns turns_;
  Channel next_channels_ = kChannelBlock;
};

}  // namespace skein

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
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/arena.h"
#include "core/event_source.h"
#include "core/loop.h"
#include "core/queue.h"
#include "core/span.h"
#include "skein/error.h"

namespace skein {

using Channel = int;

// Channels are handed out in blocks, each to one user, and never used again: what was on its way
// when its user ended cannot reach the next one. The first block is the world's own.
inline constexpr Channel kChannelBlock = 8;
inline constexpr Channel kMostChannels = 1 << 14;

// Where an operation on one channel needs a second one, it is that many further on: such channels
// are not handed out. Nor are those whose second ones the fabrics use themselves, the last two.
inline constexpr Channel kSecondChannels = kMostChannels / 2;
inline constexpr Channel kMostHandedOut = kSecondChannels - kChannelBlock;

// Workers of one host; whoever starts or joins them refuses more.
inline constexpr int kMostWorkersOfAHost = 256;

// What travels in a collective: float32, or bfloat16 in half the bytes (fabric/half.h says what is
// rounded).
enum class Wire : std::uint8_t { f32, bf16 };

// What a receiver does with what arrives: bytes are only copied.
enum class Combine : std::uint8_t { copy, add };

// Puts what the record `from` says into `into`, which is of lower ranks. Records are plain bytes,
// all of one size. Merging must be associative; then all ranks get the same, however it is done.
using Merge = std::function<void(std::span<std::byte> into, std::span<const std::byte> from)>;

// The r-th of `size` equal parts of `count` elements. They start on cache lines; the last ones may
// be shorter or empty.
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

// How long an operation waits for a peer: until a time, or until the peer has been silent for so
// long. Messages that move and steps that are made (Fabric::progressed) end a silence, those of the
// peer itself and of whom it waits for in turn. So a large model on a slow network takes as long as
// it takes, and a worker that is merely slow is waited for; one that stands still is not.
class Limit {
 public:
  Limit(Deadline until) : until_(until) {}
  static Limit silence(Duration longest) { return Limit(kNever, longest); }

  bool never() const { return until_ == kNever && silence_ == Duration::max(); }

  // When a wait that began at `begin` ends, where the last sign of progress was at `sign`.
  Time end(Time begin, Time sign) const {
    return silence_ == Duration::max() ? until_ : std::max(begin, sign) + silence_;
  }
  // The same, but so much longer.
  Limit later(Duration more) const {
    return {until_ == kNever ? kNever : until_ + more,
            silence_ == Duration::max() ? silence_ : silence_ + more};
  }
  bool by_silence() const { return silence_ != Duration::max(); }

 private:
  Limit(Deadline until, Duration longest) : until_(until), silence_(longest) {}
  Deadline until_;
  Duration silence_ = Duration::max();
};

// What a fabric promises and asks for beyond what all of them do.
struct Traits {
  // Part p of a sum is added in the order p+1, p+2, …, p: the bits of every other such fabric.
  bool ring_order = true;
  // Sums on devices are added in an order of the fabric's own: the same on all ranks and in every
  // run, but with other bits than anywhere else.
  bool own_order = false;
  // When a peer is lost the other ranks go on with messages among themselves.
  bool survives_losses = true;
  // Workers must compute on devices.
  bool devices_only = false;
};

// One operation under way: what an error message needs to say of it.
struct Operation {
  const char* name;
  Channel channel;
  std::uint64_t sequence;  // how many were started on this channel before it
  Limit limit;
  bool of_all = false;  // a collective: it fails when any worker does
};
std::string describe(const Operation& operation);

// A wait that has come to its limit.
class TooLate final : public IoError {
 public:
  TooLate(const Operation& operation, int peer);
};

// An operation finds that an earlier one on its line, which failed, has closed the line. The
// earlier one knows which rank is lost; this error names the rank at the line's other end.
class LineClosed final : public IoError {
 public:
  using IoError::IoError;
};

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

  // The first of kChannelBlock channels that nobody has used. All ranks ask in the same order.
  // Throws ConfigError when there are none left.
  Channel allot_channels();

  // Zeroed memory that operations use without a staging copy where there is a way; operations on
  // other memory work too. Bytes, for messages, are in memory of the host; values are on the device
  // of the loop's queue, if it has one. Any thread. Throws ConfigError, with what is needed and
  // what there is, where there is not so much.
  std::unique_ptr<Memory> allocate(std::size_t count, Type type = Type::f32);

  // The same where `like` is: on the host, on a device, or absent.
  std::unique_ptr<Memory> allocate_like(Span like, std::size_t count, Type type);

  virtual Traits traits() const { return {}; }
  virtual Chunking chunking() const { return {}; }

  // The part of `count` elements that `rank` holds after a reduce-scatter.
  virtual Range part(std::size_t count, int rank) const { return shard(count, size(), rank); }

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
  virtual void progressed() {}

  // When it last has, or one that it waits for, and what it learns of that from elsewhere. A sign
  // that is only passed on keeps its time, so that workers who wait for each other cannot keep each
  // other waiting for ever.
  virtual Time latest_sign() const { return {}; }
  virtual void pass_on(Time) {}

  Loop& loop() const { return loop_; }
  virtual std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  virtual void observe(WaitObserver* observer) { observer_ = observer; }

  // Decides, for all ranks and for good, that `peer` is lost. False: it has been decided before
  // that this rank is. Of two that take each other for lost one gets false. Nullopt: nobody can
  // decide that in this fabric, and ranks can only tell each other.
  virtual std::optional<bool> expel(int peer);
  virtual bool expelled(int rank) const;

  // Tells the peers why this rank is about to end: they get IoError with this text.
  virtual void fail(const std::string&) {}

  // Before the first operation on memory of a device, and again when the loop has got another
  // queue: all ranks find out together how they can reach each other's. Nothing else on such memory
  // is under way meanwhile. Without it operations on it go through the host.
  virtual Task<> meet_on_device(Limit) { co_return; }

  // Why memory of devices goes through the host where it need not have; empty where there is
  // nothing to say.
  virtual std::string why_staged() const { return ""; }

  // Where the loop's thread may sleep; null when nothing ever arrives from outside.
  virtual EventSource* events() { return nullptr; }

  // The primitives that collectives are written on. start_send() ends when the message is under
  // way; `data` must not change until a finish_sends() to that peer has ended. Messages of
  // collectives are taken back with the collective; others are started by a Sending.
  Task<> start_send(const Operation& operation, int peer, Span data);
  Task<> finish_sends(const Operation& operation, int peer);
  Task<> receive_into(const Operation& operation, int peer, Span into, Combine combine);

  // Of a collective that has begun all of its messages, the last one to receive included: the next
  // one on its channel may begin before this one has ended, since its messages come behind. So the
  // network need not stand still from one to the next.
  void next_may_begin(const Operation& operation);

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

 protected:
  // The part of allocate() that is about memory of the host.
  virtual std::unique_ptr<Memory> allocate_on_host(std::size_t count, Type type) {
    return allocate_on_heap_of(type, count);
  }

  // And of the queue's device.
  virtual std::unique_ptr<Memory> allocate_on_device(std::size_t count, Type type) {
    return loop_.queue()->allocate(count, type);
  }

  // Memory of the host, with any contents, through which messages of devices go.
  virtual std::unique_ptr<Memory> allocate_staging(std::size_t count, Type type) {
    return loop_.queue()->allocate_on_host(count, type);
  }

  // The collectives, called in turn and only when size() > 1. The defaults use the primitives.
  virtual Task<> run_reduce_scatter(const Operation& operation, Span buffer, Wire wire);
  virtual Task<> run_all_gather(const Operation& operation, Span buffer, Wire wire);
  virtual Task<> run_all_reduce(const Operation& operation, Span buffer, Wire wire);
  virtual Task<> run_combine(const Operation& operation, Span record, const Merge& merge);
  virtual Task<> run_broadcast(const Operation& operation, Span buffer, int root);
  virtual Task<> run_exchange(const Operation& operation, int peer, Span out, Span in);

  // A copy of a message, until the peer has let go of it.
  struct Staged {
    std::uint64_t number;
    std::unique_ptr<Memory> memory;
  };

  // One direction between this rank and a peer on one channel. Messages pass one after the other;
  // one that does not end well breaks the line.
  struct Line {
    Line(Fabric& its_carrier, int its_peer, Channel its_channel, bool sends)
        : carrier(its_carrier),
          peer(its_peer),
          channel(its_channel),
          outgoing(sends),
          changed(carrier.loop()) {}
    virtual ~Line() = default;

    // The peer has taken the first so many messages. What comes behind may be staged already.
    void let_go(std::uint64_t messages) {
      while (!staged.empty() && staged.front().number < messages) staged.pop_front();
    }

    Fabric& carrier;  // who opened it
    const int peer;
    const Channel channel;
    const bool outgoing;
    std::uint64_t begun = 0;          // messages so far
    std::uint64_t serving = 0;        // number of the one whose turn it is, from 0
    std::string broken;               // which operation did not end well
    std::deque<Staged> staged;        // what is sent of memory that peers cannot reach
    std::unique_ptr<Memory> arrived;  // on the device: where what is to be added arrives
    Signal changed;
  };

  // Whose line a message on this channel takes, and what the two are called there. A fabric that is
  // made of others has no lines of its own: two for the same messages would each count them.
  struct Route {
    Fabric& carrier;
    int peer;
    Channel channel;
  };
  virtual Route route(int peer, Channel channel) { return {*this, peer, channel}; }

  // What follows is only asked of a line's carrier: a fabric that is made of others has none of it.

  virtual std::unique_ptr<Line> open_line(int peer, Channel channel, bool outgoing);

  // Whether its lines take this memory as it is: else what is on a device is staged on the host. A
  // message is then ordered by the loop's queue at both ends.
  virtual bool carries(Span data) const { return data.device.kind != Device::gpu; }

  // Puts the line's next message, number `serving`, on its way; false: there is no room yet. And
  // the wait for room.
  virtual bool try_post(const Operation& operation, Line& line, Span data);
  virtual Task<> wait_for_room(const Operation& operation, Line& line);

  // Whether the peer has let go of everything posted, and the wait until it has of the line's first
  // so many messages.
  virtual bool all_taken(Line& line);
  virtual Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages);

  // Takes message number `serving`, waiting until it is there.
  virtual Task<> take(const Operation& operation, Line& line, Span into, Combine combine);

  // A broken line: no memory behind it is looked at after this, and the peer's operations on it
  // fail.
  virtual void close_line(Line& line);

  // Puts what has arrived in memory of the host to where it belongs on the device, behind whatever
  // is on its queue.
  void bring(Line& line, std::unique_ptr<Memory> from, Span into, Combine combine);

  // Throws if an operation on the line cannot succeed any more.
  static void check_open(const Operation& operation, const Line& line);

  void count_sent(std::size_t bytes) { bytes_sent_.fetch_add(bytes, std::memory_order_relaxed); }
  WaitObserver* observer() const { return observer_; }

 private:
  friend class GroupFabric;
  friend class LevelsFabric;
  friend class NcclFabric;

  struct Turns;  // the queue of one channel
  class Turn;
  class Passage;

  using Lines = std::unordered_map<std::uint64_t, std::unique_ptr<Line>>;

  Operation begin(const char* name, Channel channel, Limit limit);
  Turns& turns(Channel channel);
  Line& line(int peer, Channel channel, bool outgoing);
  Task<> in_turn(Operation operation, Task<> body);
  Task<> in_turn(const Operation& operation, Line& line, std::uint64_t number);
  [[noreturn]] void not_its_line(int peer) const;
  Task<> deliver(Operation operation, int peer, std::unique_ptr<Memory> message);
  class Staging;
  Task<> send_staged(const Operation& operation, Line& line, Span data);
  Task<> take_staged(const Operation& operation, Line& line, Span into, Combine combine);
  void keep_until(Mark mark, std::unique_ptr<Memory> memory);
  void give_up(Line& line, const Operation& operation);
  void give_up_sends(const Operation& operation);

  Loop& loop_;
  WaitObserver* observer_ = nullptr;
  std::atomic<std::uint64_t> bytes_sent_{0};
  Channel next_channels_ = kChannelBlock;
  std::vector<std::unique_ptr<Turns>> turns_;  // by channel
  Lines outgoing_, incoming_;

  // Memory of the host that work on the queue still uses.
  struct Kept {
    Mark mark;
    std::unique_ptr<Memory> memory;
  };
  std::vector<Kept> kept_;
};

}  // namespace skein

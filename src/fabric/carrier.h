// Carries messages between this rank and its peers: what a fabric is that is not made of others.
//
// Messages on one line pass in turn, and one that does not end well breaks the line at both ends.
// What a line cannot take from a device passes through memory of the host. How a line opens, posts,
// takes and closes is each carrier's own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/arena.h"
#include "core/loop.h"
#include "core/queue.h"
#include "core/span.h"
#include "fabric/operation.h"

namespace skein {

class Carrier {
 public:
  explicit Carrier(Loop& loop) : loop_(loop) {}
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;
  virtual ~Carrier();

  // A copy of a message, until the peer has let go of it.
  struct Staged {
    std::uint64_t number;
    std::unique_ptr<Memory> memory;
  };

  // One direction between this rank and a peer on one channel.
  struct Line {
    Line(Carrier& carrier, int its_peer, Channel its_channel, bool sends)
        : peer(its_peer), channel(its_channel), outgoing(sends), changed(carrier.loop_) {}
    virtual ~Line() = default;

    // The peer has taken the first so many messages. What comes behind may be staged already.
    void let_go(std::uint64_t messages) {
      while (!staged.empty() && staged.front().number < messages) staged.pop_front();
    }

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

  // The line of that peer and channel, which is opened when it is first asked for.
  Line& line_to(int peer, Channel channel);
  Line& line_from(int peer, Channel channel);

  // What Fabric's primitives do on a line.
  Task<> start_send_on(Line& line, const Operation& operation, Span data);
  Task<> finish_sends_on(Line& line, const Operation& operation);
  Task<> receive_on(Line& line, const Operation& operation, Span into, Combine combine);

  // Breaks the line; or that to a peer, where it is open and the peer has not taken everything.
  void give_up(Line& line, const Operation& operation);
  void give_up_untaken(int peer, Channel channel, const Operation& operation);

  // Waits until the peer has let go of the line's first so many messages.
  virtual Task<> wait_until_taken(const Operation& operation, Line& line,
                                  std::uint64_t messages) = 0;

 protected:
  virtual std::unique_ptr<Line> open_line(int peer, Channel channel, bool outgoing) = 0;

  // Whether its lines take this memory as it is: else what is on a device is staged on the host. A
  // message is then ordered by the loop's queue at both ends.
  virtual bool carries(Span data) const { return data.device.kind != Device::gpu; }

  // Memory of the host, with any contents, through which messages of devices go.
  virtual std::unique_ptr<Memory> allocate_staging(std::size_t count, Type type) {
    return loop_.queue()->allocate_on_host(count, type);
  }

  // Puts the line's next message, number `serving`, on its way; false: there is no room yet. And
  // the wait for room.
  virtual bool try_post(const Operation& operation, Line& line, Span data) = 0;
  virtual Task<> wait_for_room(const Operation& operation, Line& line) = 0;

  // Whether the peer has let go of everything posted.
  virtual bool all_taken(Line& line) = 0;

  // Takes message number `serving`, waiting until it is there.
  virtual Task<> take(const Operation& operation, Line& line, Span into, Combine combine) = 0;

  // A broken line: no memory behind it is looked at after this, and the peer's operations on it
  // fail.
  virtual void close_line(Line& line) = 0;

  // Puts what has arrived in memory of the host to where it belongs on the device, behind whatever
  // is on its queue.
  void bring(Line& line, std::unique_ptr<Memory> from, Span into, Combine combine);

  // Throws if an operation on the line cannot succeed any more.
  static void check_open(const Operation& operation, const Line& line);

 private:
  class Staging;
  using Lines = std::unordered_map<std::uint64_t, std::unique_ptr<Line>>;

  // Memory of the host that work on the queue still uses.
  struct Kept {
    Mark mark;
    std::unique_ptr<Memory> memory;
  };

  Task<> in_turn(const Operation& operation, Line& line, std::uint64_t number);
  Task<> send_staged(const Operation& operation, Line& line, Span data);
  Task<> take_staged(const Operation& operation, Line& line, Span into, Combine combine);
  void keep_until(Mark mark, std::unique_ptr<Memory> memory);

  Loop& loop_;
  Lines outgoing_, incoming_;
  std::vector<Kept> kept_;
};

}  // namespace skein

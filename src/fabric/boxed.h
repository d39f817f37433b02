// What fabrics have in common whose messages leave from and arrive in boxes, one for each peer,
// channel and direction: `tcp` and `mpi`.
//
// Peer is the other rank: it has outbox() and inbox() of a channel, and does what tcp/connection.h
// says of post(), keep_messages(), start(), stop(), pop(), close(), ask(), await() and fail(). What
// the boxes are asked is in tcp/boxes.h.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "fabric/fabric.h"
#include "fabric/signs.h"
#include "fabric/wait_end.h"
#include "skein/error.h"

namespace skein {

template <typename Peer, typename Outbox, typename Inbox>
class BoxedFabric : public Fabric {
 public:
  explicit BoxedFabric(Loop& loop) : Fabric(loop), signs_(loop.now()) {}

  void fail(const std::string& reason) override {
    for (int each = 0; each < size(); ++each)
      if (each != rank()) peer(each).fail(reason);
  }
  void progressed() override { signs_.progressed(); }
  Time latest_sign() const override { return signs_.last(); }
  void pass_on(Time sign) override { signs_.pass_on(sign); }

 protected:
  virtual Peer& peer(int rank) = 0;

  // A message is about to leave, or one is waited for.
  virtual void stir() {}

  Signs& signs() { return signs_; }

  std::unique_ptr<Line> open_line(int its_peer, Channel channel, bool outgoing) override {
    if (outgoing)
      return std::make_unique<OutLine>(*this, its_peer, channel, peer(its_peer).outbox(channel));
    return std::make_unique<InLine>(*this, its_peer, channel, peer(its_peer).inbox(channel));
  }

  bool try_post(const Operation&, Line& line, Span data) override {
    Outbox& box = out(line);
    if (!has_room(line)) return false;
    peer(line.peer).post(box, data);
    stir();
    progressed();
    count_sent(data.bytes());
    return true;
  }

  Task<> wait_for_room(const Operation& operation, Line& line) override {
    Outbox& box = out(line);
    co_await wait_for(
        operation, line.peer, box.moved, [&] { return has_room(line); },
        [&box] { return box.refused; });
  }

  bool all_taken(Line& line) override {
    const Outbox& box = out(line);
    return box.messages.empty() && !box.dropped;
  }

  Task<> wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) override {
    Outbox& box = out(line);
    Keeping keeping(peer(line.peer), box);
    try {
      co_await wait_for(
          operation, line.peer, box.moved,
          [&box, messages] { return box.let_go(messages) && !box.dropped; },
          [&] { return box.dropped || !line.broken.empty(); });
    } catch (const IoError&) {
      keeping.over = true;  // the line breaks
      throw;
    }
    keeping.over = true;
  }

  Task<> take(const Operation& operation, Line& line, Span into, Combine combine) override {
    Inbox& box = in(line);
    const Posted posted(peer(line.peer), box, into, combine);
    const auto there = [&] {
      return box.knows_first() &&
             (box.arrivals.front().total != into.bytes() || box.arrivals.front().complete());
    };
    co_await wait_for(operation, line.peer, box.moved, there, [&box] { return box.exhausted(); });
    if (box.arrivals.front().total != into.bytes()) {
      const std::string text =
          fmt::format("{}: rank {} sent {} bytes, rank {} expects {}", describe(operation),
                      line.peer, box.arrivals.front().total, rank(), into.bytes());
      fail(text);
      throw IoError(text, line.peer);
    }
    peer(line.peer).pop(box);
    progressed();
  }

  void close_line(Line& line) override {
    if (line.outgoing)
      peer(line.peer).close(out(line));
    else
      peer(line.peer).close(in(line));
    line.staged.clear();
  }

 private:
  // Messages of a line that may wait to leave.
  static constexpr std::size_t kMostPosted = 16;

  // How often one that waits asks whether the other makes progress.
  static constexpr Duration kLookAround = std::chrono::milliseconds(50);

  struct OutLine final : Line {
    OutLine(Fabric& carrier, int its_peer, Channel its_channel, Outbox& its_box)
        : Line(carrier, its_peer, its_channel, true), box(its_box) {}
    Outbox& box;
  };

  struct InLine final : Line {
    InLine(Fabric& carrier, int its_peer, Channel its_channel, Inbox& its_box)
        : Line(carrier, its_peer, its_channel, false), box(its_box) {}
    Inbox& box;
  };

  // Whoever waits may go, and the memory with it, before the message has left.
  class Keeping {
   public:
    Keeping(Peer& peer, Outbox& box) : peer_(peer), box_(box) {}
    Keeping(const Keeping&) = delete;
    Keeping& operator=(const Keeping&) = delete;
    ~Keeping() {
      if (!over) peer_.keep_messages(box_);
    }
    bool over = false;

   private:
    Peer& peer_;
    Outbox& box_;
  };

  // A receive that goes away takes its memory with it.
  class Posted {
   public:
    Posted(Peer& peer, Inbox& box, Span into, Combine combine)
        : peer_(peer), box_(box), receive_{into, combine} {
      peer_.start(box_, receive_);
    }
    Posted(const Posted&) = delete;
    Posted& operator=(const Posted&) = delete;
    ~Posted() { peer_.stop(box_); }

   private:
    Peer& peer_;
    Inbox& box_;
    typename Inbox::Receive receive_;
  };

  // Tells others of the progress of one that is waited for.
  class Waiting {
   public:
    explicit Waiting(Peer& peer) : peer_(peer) { peer_.await(true); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() { peer_.await(false); }

   private:
    Peer& peer_;
  };

  static Outbox& out(Line& line) { return static_cast<OutLine&>(line).box; }
  static Inbox& in(Line& line) { return static_cast<InLine&>(line).box; }

  bool has_room(Line& line) {
    const Outbox& box = out(line);
    return !box.refused && !peer(line.peer).lost() && box.waiting() < kMostPosted;
  }

  // What another rank than `besides` says that it failed of. A rank that leaves may do so because
  // another has failed: that is what the user needs to know.
  std::string failure_besides(int besides) {
    for (int each = 0; each < size(); ++each)
      if (each != besides && each != rank() && !peer(each).failure().empty())
        return fmt::format("; rank {} failed: {}", each, peer(each).failure());
    return "";
  }

  // Waits until `reached()`, which `other` brings about and `moved` tells of. It never will if
  // `given_up()`.
  template <typename Reached, typename GivenUp>
  Task<> wait_for(const Operation& operation, int other, Signal& moved, Reached reached,
                  GivenUp given_up) {
    if (reached()) co_return;
    if (observer()) observer()->waiting(operation.name, other);
    stir();
    const Waiting waiting(peer(other));
    const Time begin = loop().now();
    WaitEnd wait_end(operation.limit, begin);
    Time asked = begin;
    while (!reached()) {
      const std::string trouble = peer(other).trouble();
      if (!trouble.empty())
        throw IoError(fmt::format("{} waits for rank {}, {}{}", describe(operation), other, trouble,
                                  peer(other).failure().empty() ? failure_besides(other) : ""),
                      other);
      if (given_up())
        throw IoError(fmt::format("{}: rank {} has given it up{}", describe(operation), other,
                                  failure_besides(other)),
                      other);
      const Time now = loop().now();
      const Time end = wait_end.at(now, peer(other).sign());
      if (now >= end) throw TooLate(operation, other);
      if (now - asked >= kLookAround) {
        asked = now;
        peer(other).ask();
      }
      co_await moved.wait(std::min(end, now + kLookAround));
    }
    if (observer()) observer()->resumed();
  }

  Signs signs_;
};

}  // namespace skein

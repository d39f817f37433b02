#include "fabric/boxed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "core/on_exit.h"
#include "fabric/wait_end.h"
#include "skein/error.h"

namespace skein {

using boxed::Inbox;
using boxed::Outbox;

namespace {

// Messages of a line that may wait to leave.
constexpr std::size_t kMostPosted = 16;

// How often one that waits asks whether the other makes progress.
constexpr Duration kLookAround = std::chrono::milliseconds(50);

}  // namespace

struct BoxedFabric::OutLine final : Line {
  OutLine(Carrier& carrier, int its_peer, Channel its_channel, Outbox& its_box)
      : Line(carrier, its_peer, its_channel, true), box(its_box) {}
  Outbox& box;
};

struct BoxedFabric::InLine final : Line {
  InLine(Carrier& carrier, int its_peer, Channel its_channel, Inbox& its_box)
      : Line(carrier, its_peer, its_channel, false), box(its_box) {}
  Inbox& box;
};

Outbox& BoxedFabric::out(Line& line) { return static_cast<OutLine&>(line).box; }
Inbox& BoxedFabric::in(Line& line) { return static_cast<InLine&>(line).box; }

void BoxedFabric::fail(const std::string& reason) {
  for (int each = 0; each < size(); ++each)
    if (each != rank()) peer(each).fail(reason);
}

std::unique_ptr<Carrier::Line> BoxedFabric::open_line(int its_peer, Channel channel,
                                                      bool outgoing) {
  if (outgoing)
    return std::make_unique<OutLine>(*this, its_peer, channel, peer(its_peer).outbox(channel));
  return std::make_unique<InLine>(*this, its_peer, channel, peer(its_peer).inbox(channel));
}

bool BoxedFabric::try_post(const Operation&, Line& line, Span data) {
  Outbox& box = out(line);
  if (!has_room(line)) return false;
  peer(line.peer).post(box, data);
  stir();
  progressed();
  count_sent(data.bytes());
  return true;
}

Task<> BoxedFabric::wait_for_room(const Operation& operation, Line& line) {
  Outbox& box = out(line);
  co_await wait_for(
      operation, line.peer, box.moved, [&] { return has_room(line); },
      [&box] { return box.refused; });
}

bool BoxedFabric::all_taken(Line& line) {
  const Outbox& box = out(line);
  return box.messages.empty() && !box.dropped;
}

Task<> BoxedFabric::wait_until_taken(const Operation& operation, Line& line,
                                     std::uint64_t messages) {
  Outbox& box = out(line);
  bool over = false;
  const OnExit keeps([&] {  // the memory may go with whoever waits, before the message has left
    if (!over) peer(line.peer).keep_messages(box);
  });
  try {
    co_await wait_for(
        operation, line.peer, box.moved,
        [&box, messages] { return box.let_go(messages) && !box.dropped; },
        [&] { return box.dropped || !line.broken.empty(); });
  } catch (const IoError&) {
    over = true;  // the line breaks
    throw;
  }
  over = true;
}

Task<> BoxedFabric::take(const Operation& operation, Line& line, Span into, Combine combine) {
  Inbox& box = in(line);
  const Inbox::Receive receive{into, combine};
  peer(line.peer).start(box, receive);
  const OnExit stops([&] { peer(line.peer).stop(box); });
  const auto there = [&] {
    return box.knows_first() &&
           (box.arrivals.front().total != into.bytes() || box.arrivals.front().complete());
  };
  co_await wait_for(operation, line.peer, box.moved, there, [&box] { return box.exhausted(); });
  if (box.arrivals.front().total != into.bytes()) {
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes, rank {} expects {}", describe(operation), line.peer,
                    box.arrivals.front().total, rank(), into.bytes());
    fail(text);
    throw IoError(text, line.peer);
  }
  peer(line.peer).pop(box);
  progressed();
}

void BoxedFabric::close_line(Line& line) {
  if (line.outgoing)
    peer(line.peer).close(out(line));
  else
    peer(line.peer).close(in(line));
  line.staged.clear();
}

bool BoxedFabric::has_room(Line& line) {
  const Outbox& box = out(line);
  return !box.refused && !peer(line.peer).lost() && box.waiting() < kMostPosted;
}

// What another rank than `besides` says that it failed of. A rank that leaves may do so because
// another has failed: that is what the user needs to know.
std::string BoxedFabric::failure_besides(int besides) {
  for (int each = 0; each < size(); ++each)
    if (each != besides && each != rank() && !peer(each).failure().empty())
      return fmt::format("; rank {} failed: {}", each, peer(each).failure());
  return "";
}

// Waits until `reached()`, which `other` brings about and `moved` tells of. It never will if
// `given_up()`.
template <typename Reached, typename GivenUp>
Task<> BoxedFabric::wait_for(const Operation& operation, int other, Signal& moved, Reached reached,
                             GivenUp given_up) {
  if (reached()) co_return;
  if (observer()) observer()->waiting(operation.name, other);
  stir();
  peer(other).await(true);
  const OnExit waits_no_more([&] { peer(other).await(false); });
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

}  // namespace skein

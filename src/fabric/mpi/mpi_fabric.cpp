#include "fabric/mpi/mpi_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "fabric/mpi/session.h"
#include "skein/error.h"

namespace skein::mpi {
namespace {

using namespace std::chrono_literals;

// Messages of a line that may wait to leave.
constexpr std::size_t kMostPosted = 16;

// How often one that waits asks whether the other makes progress.
constexpr Duration kLookAround = 50ms;

// How long one that leaves waits until its last messages, which nobody waits for, have left.
constexpr Duration kLastMessages = 2s;

}  // namespace

struct MpiFabric::OutLine final : Line {
  OutLine(Fabric& carrier, int its_peer, Channel its_channel, Outbox& its_box)
      : Line(carrier, its_peer, its_channel, true), box(its_box) {}
  Outbox& box;
};

struct MpiFabric::InLine final : Line {
  InLine(Fabric& carrier, int its_peer, Channel its_channel, Inbox& its_box)
      : Line(carrier, its_peer, its_channel, false), box(its_box) {}
  Inbox& box;
};

MpiFabric::MpiFabric(Loop& loop, MPI_Comm communicator, Duration patience, Duration longest_nap)
    : Fabric(loop),
      mail_(std::make_unique<Mail>(communicator)),
      rank_(mail_->rank()),
      size_(mail_->size()),
      patience_(patience),
      signs_(loop.now()),
      back_off_([this] { return look(); }, longest_nap),
      take_([this](const Arrived& arrived) { return peer(arrived.from).take(arrived); }) {
  peers_.reserve(static_cast<std::size_t>(size_));
  for (int each = 0; each < size_; ++each)
    peers_.push_back(each == rank_ ? nullptr : std::make_unique<Peer>(loop, *mail_, signs_, each));
  Session::of_this_process().begin();
}

MpiFabric::~MpiFabric() {
  const SteadyClock clock;
  const auto waits = [this] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& each) { return each && each->has_more(); });
  };
  for (const Time end = clock.now() + kLastMessages; waits() && clock.now() < end;) {
    look();
    std::this_thread::sleep_for(100us);
  }
  std::vector<bool> left(static_cast<std::size_t>(size_), true);
  bool failed = failed_;
  for (int each = 0; each < size_; ++each) {
    if (each == rank_) continue;
    mail_->send(each, {Kind::left});
    left[static_cast<std::size_t>(each)] = peer(each).left();
    failed |= !peer(each).failure().empty();
  }
  Session::of_this_process().keep(
      std::make_unique<Farewell>(std::move(mail_), std::move(left), failed, patience_));
}

bool MpiFabric::look() {
  const bool moved = mail_->poll(take_);
  for (const auto& each : peers_)
    if (each && each->may_send()) each->send();
  return moved;
}

void MpiFabric::fail(const std::string& reason) {
  failed_ = true;
  for (const auto& each : peers_)
    if (each) each->fail(reason);
}

// A rank that leaves may do so because another has failed: that is what the user needs to know.
std::string MpiFabric::failure_besides(int besides) {
  for (int each = 0; each < size_; ++each)
    if (each != besides && each != rank_ && !peer(each).failure().empty())
      return fmt::format("; rank {} failed: {}", each, peer(each).failure());
  return "";
}

// Tells others of the progress of one that is waited for.
class MpiFabric::Waiting {
 public:
  explicit Waiting(Peer& peer) : peer_(peer) { peer_.await(true); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { peer_.await(false); }

 private:
  Peer& peer_;
};

template <typename Reached, typename GivenUp>
Task<> MpiFabric::wait_for(const Operation& operation, int other, Signal& moved, Reached reached,
                           GivenUp given_up) {
  if (reached()) co_return;
  if (observer()) observer()->waiting(operation.name, other);
  back_off_.stir();
  const Waiting waiting(peer(other));
  const Time begin = loop().now();
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
    const Time end =
        operation.limit.never() ? kNever : operation.limit.end(begin, peer(other).sign());
    if (now >= end) throw IoError(too_late(operation, other), other);
    if (now - asked >= kLookAround) {
      asked = now;
      peer(other).ask();
    }
    co_await moved.wait(std::min(end, now + kLookAround));
  }
  if (observer()) observer()->resumed();
}

std::unique_ptr<Fabric::Line> MpiFabric::open_line(int other, Channel channel, bool outgoing) {
  if (outgoing)
    return std::make_unique<OutLine>(*this, other, channel, peer(other).outbox(channel));
  return std::make_unique<InLine>(*this, other, channel, peer(other).inbox(channel));
}

bool MpiFabric::try_post(const Operation&, Line& line, Span data) {
  Outbox& box = static_cast<OutLine&>(line).box;
  Peer& other = peer(line.peer);
  if (box.refused || !mail_->trouble().empty() || box.messages.size() >= kMostPosted) return false;
  other.post(box, data);
  back_off_.stir();
  progressed();
  count_sent(data.bytes());
  return true;
}

Task<> MpiFabric::wait_for_room(const Operation& operation, Line& line) {
  Outbox& box = static_cast<OutLine&>(line).box;
  const auto room = [&] {
    return !box.refused && mail_->trouble().empty() && box.messages.size() < kMostPosted;
  };
  co_await wait_for(operation, line.peer, box.moved, room, [&box] { return box.refused; });
}

bool MpiFabric::all_taken(Line& line) {
  const Outbox& box = static_cast<OutLine&>(line).box;
  return box.messages.empty() && !box.dropped;
}

// Whoever waits may go, and the memory with it, before the message has left.
class MpiFabric::Keeping {
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

Task<> MpiFabric::wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) {
  Outbox& box = static_cast<OutLine&>(line).box;
  const auto taken = [&box, messages] {
    return (box.messages.empty() || box.departed >= messages) && !box.dropped;
  };
  Keeping keeping(peer(line.peer), box);
  try {
    co_await wait_for(operation, line.peer, box.moved, taken,
                      [&] { return box.dropped || !line.broken.empty(); });
  } catch (const IoError&) {
    keeping.over = true;  // the line breaks
    throw;
  }
  keeping.over = true;
}

// A receive that goes away takes its memory with it.
class MpiFabric::Posted {
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
  Inbox::Receive receive_;
};

Task<> MpiFabric::take(const Operation& operation, Line& line, Span into, Combine combine) {
  Inbox& box = static_cast<InLine&>(line).box;
  Peer& other = peer(line.peer);
  const Posted posted(other, box, into, combine);
  const auto there = [&] {
    return !box.arrivals.empty() &&
           (box.arrivals.front().total != into.bytes() || box.arrivals.front().complete());
  };
  co_await wait_for(operation, line.peer, box.moved, there, [&box] { return box.withdrawn; });
  if (box.arrivals.front().total != into.bytes()) {
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes, rank {} expects {}", describe(operation), line.peer,
                    box.arrivals.front().total, rank(), into.bytes());
    fail(text);
    throw IoError(text, line.peer);
  }
  other.pop(box);
  progressed();
}

void MpiFabric::close_line(Line& line) {
  if (line.outgoing)
    peer(line.peer).close(static_cast<OutLine&>(line).box);
  else
    peer(line.peer).close(static_cast<InLine&>(line).box);
  line.staged.clear();
}

}  // namespace skein::mpi

#include "fabric/tcp/tcp_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "fabric/tcp/meeting.h"
#include "skein/error.h"

namespace skein {

std::string why_no_tcp() { return ""; }

std::unique_ptr<Fabric> make_tcp_fabric(Loop& loop, const TcpOptions& options) {
  return std::make_unique<tcp::TcpFabric>(loop, options);
}

namespace tcp {
namespace {

using namespace std::chrono_literals;

// Messages of a line that may wait to be written.
constexpr std::size_t kMostPosted = 16;

// How often one that waits asks whether the other makes progress.
constexpr Duration kLookAround = 50ms;

// How long one that leaves waits until its peers' systems have all that it sent.
constexpr Duration kFarewell = 2s;

Proof proof_of(const TcpOptions& options) {
  if (!options.secret_file.empty()) return read_secret(options.secret_file, options.run);
  return CertificateFiles{options.tls_cert_file, options.tls_key_file, options.tls_ca_file};
}

ConnectionOptions connection_options(const TcpOptions& options) {
  return {options.least_silence, static_cast<std::size_t>(options.streams),
          static_cast<std::size_t>(options.most_streams)};
}

}  // namespace

struct TcpFabric::OutLine final : Line {
  OutLine(Fabric& carrier, int its_peer, Channel its_channel, Outbox& its_box)
      : Line(carrier, its_peer, its_channel, true), box(its_box) {}
  Outbox& box;
};

struct TcpFabric::InLine final : Line {
  InLine(Fabric& carrier, int its_peer, Channel its_channel, Inbox& its_box)
      : Line(carrier, its_peer, its_channel, false), box(its_box) {}
  Inbox& box;
};

TcpFabric::TcpFabric(Loop& loop, const TcpOptions& options)
    : Fabric(loop), options_(options), tls_(proof_of(options)), signs_(loop.now()) {
  const ConnectionOptions each = connection_options(options);
  Met met = meet(loop, poller_, tls_, options_);
  for (auto& stream : met.streams)
    peers_.push_back(stream ? std::make_unique<Connection>(loop, std::move(stream), signs_, each)
                            : nullptr);
  repairs_ = std::make_unique<Repairs>(loop, poller_, tls_, options_, std::move(met), peers_);
  poller_.tick_every(kBeatEvery, [this] { beat(); });
}

void TcpFabric::beat() {
  for (const auto& peer : peers_)
    if (peer) peer->beat();
}

TcpFabric::~TcpFabric() {
  const SteadyClock clock;
  // What was sent last may be lost with its stream. Who is about to leave drives the loop for that
  // himself, unless others have left something on it that must not run any more.
  const bool alone = !loop().busy();
  if (alone) repairs_->begin_anew();
  for (const auto& peer : peers_) {
    if (!peer) continue;
    if (!alone) peer->on_broken = nullptr;
    peer->leave();
  }
  const auto all_gone = [this] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer || peer->gone(); });
  };
  for (const Time end = clock.now() + kFarewell; !all_gone() && clock.now() < end;) {
    if (alone) {
      poller_.poll();
      loop().run_ready();
    }
    std::this_thread::sleep_for(200us);
  }
}

void TcpFabric::fail(const std::string& reason) {
  for (const auto& peer : peers_)
    if (peer) peer->fail(reason);
}

// A rank that leaves may do so because another has failed: that is what the user needs to know.
std::string TcpFabric::failure_besides(int peer) {
  for (int each = 0; each < size(); ++each)
    if (each != peer && each != rank() && !connection(each).failure().empty())
      return fmt::format("; rank {} failed: {}", each, connection(each).failure());
  return "";
}

// Tells others of the progress of one that is waited for.
class TcpFabric::Waiting {
 public:
  explicit Waiting(Connection& peer) : peer_(peer) { peer_.await(true); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { peer_.await(false); }

 private:
  Connection& peer_;
};

template <typename Reached, typename GivenUp>
Task<> TcpFabric::wait_for(const Operation& operation, int peer, Signal& moved, Reached reached,
                           GivenUp given_up) {
  if (reached()) co_return;
  if (observer()) observer()->waiting(operation.name, peer);
  const Waiting waiting(connection(peer));
  const Time begin = loop().now();
  Time asked = begin;
  while (!reached()) {
    const std::string trouble = connection(peer).trouble();
    if (!trouble.empty())
      throw IoError(fmt::format("{} waits for rank {}, {}{}", describe(operation), peer, trouble,
                                connection(peer).failure().empty() ? failure_besides(peer) : ""),
                    peer);
    if (given_up())
      throw IoError(fmt::format("{}: rank {} has given it up{}", describe(operation), peer,
                                failure_besides(peer)),
                    peer);
    const Time now = loop().now();
    const Time end =
        operation.limit.never() ? kNever : operation.limit.end(begin, connection(peer).sign());
    if (now >= end) throw IoError(too_late(operation, peer), peer);
    if (now - asked >= kLookAround) {
      asked = now;
      connection(peer).ask();
    }
    co_await moved.wait(std::min(end, now + kLookAround));
  }
  if (observer()) observer()->resumed();
}

std::unique_ptr<Fabric::Line> TcpFabric::open_line(int peer, Channel channel, bool outgoing) {
  if (outgoing)
    return std::make_unique<OutLine>(*this, peer, channel, connection(peer).outbox(channel));
  return std::make_unique<InLine>(*this, peer, channel, connection(peer).inbox(channel));
}

bool TcpFabric::try_post(const Operation&, Line& line, Span data) {
  Outbox& box = static_cast<OutLine&>(line).box;
  Connection& peer = connection(line.peer);
  if (box.refused || peer.lost() || box.waiting() >= kMostPosted) return false;
  peer.post(box, data);
  progressed();
  count_sent(data.bytes());
  return true;
}

Task<> TcpFabric::wait_for_room(const Operation& operation, Line& line) {
  Outbox& box = static_cast<OutLine&>(line).box;
  Connection& peer = connection(line.peer);
  const auto room = [&] { return !box.refused && !peer.lost() && box.waiting() < kMostPosted; };
  co_await wait_for(operation, line.peer, box.moved, room, [&box] { return box.refused; });
}

bool TcpFabric::all_taken(Line& line) {
  const Outbox& box = static_cast<OutLine&>(line).box;
  return box.messages.empty() && !box.dropped;
}

// Whoever waits may go, and the memory with it, while the message is still being written.
class TcpFabric::Keeping {
 public:
  Keeping(Connection& connection, Outbox& box) : connection_(connection), box_(box) {}
  Keeping(const Keeping&) = delete;
  Keeping& operator=(const Keeping&) = delete;
  ~Keeping() {
    if (!over) connection_.keep_messages(box_);
  }
  bool over = false;

 private:
  Connection& connection_;
  Outbox& box_;
};

Task<> TcpFabric::wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) {
  Outbox& box = static_cast<OutLine&>(line).box;
  const auto last = static_cast<std::uint32_t>(messages) - 1;
  const auto taken = [&box, last] {
    const auto written = [&](std::uint32_t next) {
      return static_cast<std::int32_t>(next - last) > 0;
    };
    return (box.messages.empty() || written(box.messages.front().number)) && !box.dropped;
  };
  Keeping keeping(connection(line.peer), box);
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
class TcpFabric::Posted {
 public:
  Posted(Connection& connection, Inbox& box, Span into, Combine combine)
      : connection_(connection), box_(box), receive_{into, combine} {
    connection_.start(box_, receive_);
  }
  Posted(const Posted&) = delete;
  Posted& operator=(const Posted&) = delete;
  ~Posted() { connection_.stop(box_); }

 private:
  Connection& connection_;
  Inbox& box_;
  Inbox::Receive receive_;
};

Task<> TcpFabric::take(const Operation& operation, Line& line, Span into, Combine combine) {
  Inbox& box = static_cast<InLine&>(line).box;
  Connection& peer = connection(line.peer);
  const Posted posted(peer, box, into, combine);
  const auto there = [&] {
    return !box.arrivals.empty() && box.arrivals.front().known &&
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
  peer.pop(box);
  progressed();
}

void TcpFabric::close_line(Line& line) {
  if (line.outgoing)
    connection(line.peer).close(static_cast<OutLine&>(line).box);
  else
    connection(line.peer).close(static_cast<InLine&>(line).box);
  line.staged.clear();
}

}  // namespace tcp
}  // namespace skein

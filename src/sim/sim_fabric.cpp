#include "sim/sim_fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::sim {

SimFabric::SimFabric(Cluster& cluster, int rank)
    : CarrierFabric(cluster.loop(rank), rank, cluster.size()), cluster_(cluster) {}

Traits SimFabric::traits() const {
  const std::size_t bytes = cluster_.network().chunk_bytes;
  // A send has ended here when it has left, so one at a time keeps the wire busy, and flows that do
  // not meet are cheap to simulate.
  constexpr std::size_t kAhead = 1;
  return {.chunking = bytes == 0 ? Chunking{std::numeric_limits<std::size_t>::max() / 2, 1, kAhead}
                                 : Chunking{bytes / sizeof(float), Chunking().most, kAhead}};
}

void SimFabric::fail(const std::string& reason) {
  // Each rank that gives up quotes the one before: enough is enough.
  cluster_.announce(rank(), fmt::format("which failed: {}", reason.substr(0, 300)));
}

struct SimFabric::SimLine final : Line {
  SimLine(Carrier& carrier, int its_peer, Channel its_channel, bool sends, Stream& its_stream)
      : Line(carrier, its_peer, its_channel, sends), stream(its_stream) {}
  Stream& stream;
};

// A wait for one peer, as others see it.
class SimFabric::Waiting {
 public:
  Waiting(SimFabric& fabric, const Operation& operation, int peer)
      : fabric_(fabric),
        operation_(operation),
        peer_(peer),
        begin_(fabric.cluster_.engine().now()),
        earliest_(operation.limit.end(begin_, {})) {
    if (!operation.limit.never()) fabric_.waits_for_.push_back(peer);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    if (operation_.limit.never()) return;
    auto& all = fabric_.waits_for_;
    *std::find(all.begin(), all.end(), peer_) = all.back();
    all.pop_back();
  }

  // When to ask again, at the latest. Throws if the limit has passed. What moves on the wire is no
  // silence.
  Time end(const Stream& stream) const {
    const Time now = fabric_.cluster_.engine().now();
    if (now < earliest_) return earliest_;
    Time sign{};
    if (operation_.limit.by_silence()) {
      std::vector<int> seen{fabric_.rank()};
      sign = stream.moves() ? now : fabric_.cluster_.last_sign(fabric_.rank(), peer_, seen);
    }
    earliest_ = operation_.limit.end(begin_, sign);
    if (now >= earliest_) throw TooLate(operation_, peer_);
    return earliest_;
  }

 private:
  SimFabric& fabric_;
  const Operation& operation_;
  int peer_;
  Time begin_;
  mutable Time earliest_;  // before this the limit cannot pass
};

// A process that stands still, or is gone, passes on nothing of others.
Time SimFabric::last_sign(std::vector<int>& seen) const {
  Time latest = progress_;
  if (!cluster_.running(rank()) || cluster_.paused(rank())) return latest;
  for (const int peer : waits_for_)
    latest = std::max(latest, cluster_.last_sign(rank(), peer, seen));
  return latest;
}

void SimFabric::check_peer(const Operation& operation, int peer) const {
  const std::string trouble = cluster_.trouble(rank(), peer);
  if (!trouble.empty())
    throw IoError(fmt::format("{} waits for rank {}, {}", describe(operation), peer, trouble),
                  peer);
}

std::unique_ptr<Carrier::Line> SimFabric::open_line(int peer, Channel channel, bool outgoing) {
  Stream& stream =
      outgoing ? cluster_.stream(rank(), peer, channel) : cluster_.stream(peer, rank(), channel);
  return std::make_unique<SimLine>(*this, peer, channel, outgoing, stream);
}

bool SimFabric::try_post(const Operation& operation, Line& line, Span data) {
  check_first_life(operation, line.peer);
  auto& stream = static_cast<SimLine&>(line).stream;
  if (stream.refused())
    throw IoError(fmt::format("{}: rank {} has given it up", describe(operation), line.peer),
                  line.peer);
  stream.post(data);
  progressed();
  count_sent(data.bytes());
  return true;
}

Task<> SimFabric::wait_for_room(const Operation&, Line&) { co_return; }

bool SimFabric::all_taken(Line& line) {
  auto& stream = static_cast<SimLine&>(line).stream;
  return cluster_.restarted(rank()) || stream.transmitted_count() == stream.posted();
}

Task<> SimFabric::wait_until_taken(const Operation& operation, Line& line, std::uint64_t messages) {
  check_first_life(operation, line.peer);
  auto& stream = static_cast<SimLine&>(line).stream;
  const Waiting waiting(*this, operation, line.peer);
  while (stream.transmitted_count() < messages) {
    check_open(operation, line);
    check_peer(operation, line.peer);
    co_await stream.departure().wait(waiting.end(stream));
  }
}

Task<> SimFabric::take(const Operation& operation, Line& line, Span into, Combine combine) {
  check_first_life(operation, line.peer);
  auto& stream = static_cast<SimLine&>(line).stream;
  if (!stream.arrived(line.serving)) {
    const Waiting waiting(*this, operation, line.peer);
    while (!stream.arrived(line.serving)) {
      if (stream.withdrawn())
        throw IoError(fmt::format("{}: rank {} has given it up", describe(operation), line.peer),
                      line.peer);
      if (!stream.under_way()) check_peer(operation, line.peer);
      co_await stream.arrival().wait(waiting.end(stream));
    }
  }
  progressed();
  Stream::Message message = stream.take();
  if (message.bytes != into.bytes()) {
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes, rank {} expects {}", describe(operation), line.peer,
                    message.bytes, rank(), into.bytes());
    fail(text);
    throw IoError(text, line.peer);
  }
  if (into.device == Device::absent) co_return;
  if (message.source.device != into.device) {  // of another operation: its contents are nobody's
    if (combine == Combine::copy && into.device == Device::cpu)
      std::ranges::fill(into.host_bytes(), std::byte{});
  } else {
    const Span sent{message.copy->span().data, into.count, into.device, into.type};
    combine == Combine::add ? add(into, sent) : copy(into, sent);
  }
  if (message.copy) cluster_.buffers().give_back(std::move(message.copy));
}

// A process that has ended tells nobody anything; its cluster does.
void SimFabric::close_line(Line& line) {
  if (!cluster_.running(rank()) || cluster_.restarted(rank())) return;
  auto& stream = static_cast<SimLine&>(line).stream;
  line.outgoing ? stream.withdraw() : stream.refuse();
}

}  // namespace skein::sim

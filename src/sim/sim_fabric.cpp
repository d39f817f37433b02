#include "sim/sim_fabric.h"

#include <fmt/format.h>

#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein::sim {

SimFabric::SimFabric(Cluster& cluster, int rank)
    : Fabric(cluster.loop(rank)), cluster_(cluster), rank_(rank) {}

Chunking SimFabric::chunking() const {
  const std::size_t bytes = cluster_.network().chunk_bytes;
  // A send has ended here when it has left, so one at a time keeps the wire busy, and flows that do
  // not meet are cheap to simulate.
  constexpr std::size_t kAhead = 1;
  return bytes == 0 ? Chunking{std::numeric_limits<std::size_t>::max() / 2, 1, kAhead}
                    : Chunking{bytes / sizeof(float), Chunking().most, kAhead};
}

void SimFabric::fail(const std::string& reason) {
  // Each rank that gives up quotes the one before: enough is enough.
  cluster_.announce(rank_, fmt::format("which failed: {}", reason.substr(0, 300)));
}

Stream& SimFabric::find(Streams& streams, int peer, Channel channel, bool outgoing) {
  Stream*& found =
      streams[static_cast<std::uint64_t>(peer) * kChannels + static_cast<std::uint64_t>(channel)];
  if (!found)
    found =
        outgoing ? &cluster_.stream(rank_, peer, channel) : &cluster_.stream(peer, rank_, channel);
  return *found;
}

void SimFabric::check_peer(const Operation& operation, int peer) const {
  const std::string trouble = cluster_.trouble(rank_, peer);
  if (!trouble.empty())
    throw IoError(fmt::format("{} waits for rank {}, {}", describe(operation), peer, trouble),
                  peer);
}

void SimFabric::too_late(const Operation& operation, int peer) const {
  throw IoError(
      fmt::format("{}: rank {} did not answer by the deadline", describe(operation), peer), peer);
}

Task<> SimFabric::start_send(const Operation& operation, int peer, Span data) {
  check_first_life(operation, peer);
  find(outgoing_, peer, operation.channel, true).post(data);
  count_sent(data.bytes());
  co_return;
}

Task<> SimFabric::finish_sends(const Operation& operation, int peer) {
  check_first_life(operation, peer);
  Stream& stream = find(outgoing_, peer, operation.channel, true);
  const std::uint64_t all = stream.posted();
  while (stream.transmitted_count() < all) {
    check_peer(operation, peer);
    if (!co_await stream.departure().wait(operation.deadline) && stream.transmitted_count() < all)
      too_late(operation, peer);
  }
}

Task<> SimFabric::receive_into(const Operation& operation, int peer, Span into, Combine combine) {
  check_first_life(operation, peer);
  Stream& stream = find(incoming_, peer, operation.channel, false);
  const std::uint64_t number = stream.next_receive();
  while (!stream.arrived(number)) {
    if (!stream.under_way()) check_peer(operation, peer);
    if (!co_await stream.arrival().wait(operation.deadline) && !stream.arrived(number))
      too_late(operation, peer);
  }
  Stream::Message message = stream.take(number);
  if (message.count != into.count) {
    const std::string text =
        fmt::format("{}: rank {} sent {} elements, rank {} expects {}", describe(operation), peer,
                    message.count, rank_, into.count);
    fail(text);
    throw IoError(text, peer);
  }
  if (into.device == Device::absent) co_return;
  const Span sent{message.data.data(), message.count};
  combine == Combine::add ? add(into, sent) : copy(into, sent);
  cluster_.give_buffer(std::move(message.data));
}

}  // namespace skein::sim

#include "fabric/local/local_fabric.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "fabric/local/rendezvous.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

using local::Letter;
using local::Mailbox;
using local::Presence;

namespace {

class SegmentMemory final : public Memory {
 public:
  SegmentMemory(std::shared_ptr<local::Segment> segment, std::size_t count)
      : segment_(std::move(segment)), span_(segment_->allocate(count)) {}
  ~SegmentMemory() override { segment_->release(span_); }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<local::Segment> segment_;
  Span span_;
};

}  // namespace

struct LocalFabric::PeerState {
  int pid = 0;
  FileDescriptor pidfd;
  bool dead = false;
  std::array<std::uint64_t, kChannels> received{};
  std::array<std::vector<std::unique_ptr<Memory>>, kChannels>
      staged;  // copies of what is being sent
};

// Finds the other workers; fills `peers` on the way.
std::vector<std::shared_ptr<local::Segment>> LocalFabric::meet_and_map(
    const LocalOptions& options, const std::shared_ptr<local::Segment>& own,
    std::vector<std::unique_ptr<PeerState>>& peers) {
  if (options.size > local::kMostRanks)
    throw ConfigError(fmt::format("{} workers on one host: the local fabric takes at most {}",
                                  options.size, local::kMostRanks));
  auto met = local::meet(options.run_id, options.rank, options.size, own->fd(),
                         SteadyClock().now() + options.join_timeout);
  std::vector<std::shared_ptr<local::Segment>> segments;
  for (int r = 0; r < options.size; ++r) {
    auto& peer = met[static_cast<std::size_t>(r)];
    segments.push_back(r == options.rank ? own
                                         : std::make_shared<local::Segment>(
                                               local::Segment::map(std::move(peer.segment))));
    auto& state = peers.emplace_back(std::make_unique<PeerState>());
    state->pid = peer.pid;
    state->pidfd = std::move(peer.process);
  }
  return segments;
}

LocalFabric::LocalFabric(Loop& loop, const LocalOptions& options)
    : LocalFabric(loop, options, std::make_shared<local::Segment>(local::Segment::create())) {}

LocalFabric::LocalFabric(Loop& loop, const LocalOptions& options,
                         const std::shared_ptr<local::Segment>& own_segment)
    : Fabric(loop),
      options_(options),
      segments_(meet_and_map(options, own_segment, peers_)),
      doorbell_(loop, own().header()),
      egress_(options_.link),
      ingress_(options_.link) {}

LocalFabric::~LocalFabric() {
  Presence expected = Presence::here;
  own().header().presence.compare_exchange_strong(expected, Presence::left);
  ring_all();
}

void LocalFabric::fail(const std::string& reason) {
  auto& header = own().header();
  const std::size_t length = std::min(reason.size(), sizeof(header.failure) - 1);
  std::memcpy(header.failure, reason.data(), length);
  header.failure[length] = '\0';
  header.presence.store(Presence::failed, std::memory_order_release);
  ring_all();
}

// In the memory of rank 0, which lasts as long as anybody has it, whatever becomes of rank 0.
std::optional<bool> LocalFabric::expel(int peer) {
  return segments_.front()->header().expulsions.add(rank(), peer);
}

bool LocalFabric::expelled(int rank) const {
  return segments_.front()->header().expulsions.contains(rank);
}

std::unique_ptr<Memory> LocalFabric::allocate(std::size_t count) {
  return std::make_unique<SegmentMemory>(segments_[static_cast<std::size_t>(rank())], count);
}

void LocalFabric::ring_all() {
  for (int r = 0; r < size(); ++r)
    if (r != rank()) ring(segment(r).header());
}

std::string LocalFabric::trouble_with(int peer, bool look) {
  PeerState& other = state(peer);
  if (look && !other.dead && other.pidfd.valid()) {
    pollfd ended{other.pidfd.get(), POLLIN, 0};
    other.dead = ::poll(&ended, 1, 0) > 0;
  }
  const auto& header = segment(peer).header();
  switch (header.presence.load(std::memory_order_acquire)) {
    case Presence::failed:
      return fmt::format("which failed: {}", header.failure);
    case Presence::left:
      return "which has left the run";
    case Presence::here:
      break;
  }
  return other.dead ? fmt::format("which died (process {})", other.pid) : "";
}

Task<> LocalFabric::wait_for(const Operation& operation, int peer,
                             const std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  const auto reached = [&] { return counter.load(std::memory_order_acquire) >= value; };
  if (reached() || doorbell_.briefly(reached)) co_return;
  if (observer()) observer()->waiting(operation.name, peer);
  Time looked = loop().now();
  for (;;) {
    // A system call is too much for every wait; the bell rings at least this often.
    const Time now = loop().now();
    const bool look = now - looked >= local::Doorbell::kLookAround;
    if (look) looked = now;
    const std::string trouble = trouble_with(peer, look);
    if (reached()) break;  // also if that was its last act
    if (!trouble.empty())
      throw IoError(fmt::format("{} waits for rank {}, {}", describe(operation), peer, trouble),
                    peer);
    if (now >= operation.deadline)
      throw IoError(
          fmt::format("{}: rank {} did not answer by the deadline", describe(operation), peer),
          peer);
    co_await doorbell_.bell().wait(operation.deadline);
    if (reached()) break;
  }
  if (observer()) observer()->resumed();
}

Task<> LocalFabric::start_send(const Operation& operation, int peer, Span data) {
  const auto channel = static_cast<std::size_t>(operation.channel);
  Mailbox& box = own().header().mail[peer][channel];
  const std::uint64_t number = box.posted.load(std::memory_order_relaxed);
  if (number >= local::kMailDepth)
    co_await wait_for(operation, peer, box.taken, number - local::kMailDepth + 1);
  if (!own().contains(data.data, data.bytes())) {
    auto& copies = state(peer).staged[channel];
    copies.push_back(allocate(data.count));
    copy(copies.back()->span(), data);
    data = copies.back()->span();
  }
  const Time left_at = egress_.pass(loop().now(), data.bytes());
  box.letters[number % local::kMailDepth] = {own().offset_of(data.data), data.count,
                                             left_at.time_since_epoch().count()};
  box.posted.store(number + 1, std::memory_order_release);
  ring(segment(peer).header());
  count_sent(data.bytes());
}

Task<> LocalFabric::finish_sends(const Operation& operation, int peer) {
  const auto channel = static_cast<std::size_t>(operation.channel);
  Mailbox& box = own().header().mail[peer][channel];
  const std::uint64_t all = box.posted.load(std::memory_order_relaxed);
  co_await wait_for(operation, peer, box.taken, all);
  if (box.posted.load(std::memory_order_relaxed) == all) state(peer).staged[channel].clear();
}

Task<> LocalFabric::receive_into(const Operation& operation, int peer, Span into, Combine combine) {
  const auto channel = static_cast<std::size_t>(operation.channel);
  Mailbox& box = segment(peer).header().mail[rank()][channel];
  const std::uint64_t number = state(peer).received[channel]++;
  co_await wait_for(operation, peer, box.posted, number + 1);
  const Letter letter = box.letters[number % local::kMailDepth];
  if (letter.count != into.count) {
    const std::string text =
        fmt::format("{}: rank {} sent {} elements, rank {} expects {}", describe(operation), peer,
                    letter.count, rank(), into.count);
    fail(text);
    throw IoError(text, peer);
  }
  if (options_.link.on()) {
    const Time first_byte = Time(Duration(letter.left_at_ns)) + options_.link.latency;
    const Time complete =
        ingress_.pass(first_byte, into.bytes()) + options_.link.transfer(into.bytes());
    if (complete > loop().now()) co_await loop().sleep_until(complete);
  }
  const Span sent{segment(peer).at(letter.offset), into.count};
  combine == Combine::add ? add(into, sent) : copy(into, sent);
  box.taken.store(number + 1, std::memory_order_release);
  ring(segment(peer).header());
}

}  // namespace skein

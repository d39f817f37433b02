#include "fabric/local/local_fabric.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "core/host_memory.h"
#include "core/units.h"
#include "fabric/local/peer_state.h"
#include "fabric/local/rendezvous.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

using shm::Letter;
using shm::Mailbox;
using shm::Presence;

namespace {

class SegmentMemory final : public Memory {
 public:
  SegmentMemory(std::shared_ptr<shm::OwnSegment> segment, std::size_t count, Type type)
      : segment_(std::move(segment)), span_(segment_->allocate(count, type)) {}
  ~SegmentMemory() override { segment_->release(span_); }
  Span span() const override { return span_; }

 private:
  std::shared_ptr<shm::OwnSegment> segment_;
  Span span_;
};

// Bytes from which on it is asked whether the host has so much.
constexpr std::size_t kWorthAsking = std::size_t{16} << 20;

void check_size(const LocalOptions& options) {
  if (options.size > kMostWorkersOfAHost)
    throw ConfigError(fmt::format("{} workers on one host: the local fabric takes at most {}",
                                  options.size, kMostWorkersOfAHost));
}

}  // namespace

LocalFabric::LocalFabric(Loop& loop, const LocalOptions& options)
    : LocalFabric(loop, options,
                  (check_size(options), std::make_shared<shm::OwnSegment>(options.size))) {}

LocalFabric::LocalFabric(Loop& loop, const LocalOptions& options,
                         std::shared_ptr<shm::OwnSegment> own)
    : CarrierFabric(loop, options.rank, options.size),
      options_(options),
      own_(std::move(own)),
      doorbell_(loop, own_->header(), options.descriptor),
      egress_(options_.link),
      ingress_(options_.link) {
  came_further();
  meet();
  doorbell_.look_around([this] {
    if (device_) device_->let_go_of_the_dead();
  });
}

void LocalFabric::meet() {
  auto met = shm::meet(options_.run_id, rank(), size(), own_->fd(),
                       SteadyClock().now() + options_.join_timeout, doorbell_.descriptor());
  for (int r = 0; r < size(); ++r) {
    auto& peer = met[static_cast<std::size_t>(r)];
    auto& state = peers_.emplace_back(std::make_unique<PeerState>());
    state->pid = peer.pid;
    state->process = std::move(peer.process);
    state->bell = std::move(peer.bell);
    if (r != rank())
      state->segment =
          std::make_unique<shm::PeerSegment>(std::move(peer.segment), named(r), options_.size);
  }
}

LocalFabric::~LocalFabric() {
  if (device_) leave_device();
  device_.reset();
  Presence expected = Presence::here;
  own_->header().presence.compare_exchange_strong(expected, Presence::left);
  ring_all();
}

void LocalFabric::fail(const std::string& reason) {
  auto& header = own_->header();
  const std::size_t length = std::min(reason.size(), sizeof(header.failure) - 1);
  std::memcpy(header.failure, reason.data(), length);
  header.failure[length] = '\0';
  header.presence.store(Presence::failed, std::memory_order_release);
  ring_all();
}

// In the memory of rank 0, which lasts as long as anybody has it, whatever becomes of rank 0.
std::optional<bool> LocalFabric::expel(int peer) { return header(0).expulsions.add(rank(), peer); }

bool LocalFabric::expelled(int rank) const { return header(0).expulsions.contains(rank); }

std::unique_ptr<Memory> LocalFabric::allocate_on(Device::Kind kind, std::size_t count, Type type) {
  if (kind == Device::gpu) {
    Sharing* const sharing =
        size() > 1 && !options_.link.on() ? loop().queue()->sharing() : nullptr;
    return sharing ? sharing->allocate(count, type) : CarrierFabric::allocate_on(kind, count, type);
  }
  auto memory = std::make_unique<SegmentMemory>(own_, count, type);
  if (memory->span().bytes() >= kWorthAsking) require_room(memory->span().bytes());
  return memory;
}

// Every worker counts what it takes before it asks, so of two that do not fit together one at least
// sees both.
void LocalFabric::require_room(std::size_t bytes) const {
  std::uint64_t promised = 0;
  for (int r = 0; r < size(); ++r) {
    if (header(r).presence.load(std::memory_order_acquire) != Presence::here) continue;
    promised +=
        r == rank() ? own_->promised() : peers_[static_cast<std::size_t>(r)]->segment->promised();
  }
  const std::string vector = fmt::format("a vector of {} of rank {}",
                                         print_bytes(static_cast<double>(bytes)), named(rank()));
  require_memory(promised, promised <= bytes ? vector
                                             : vector +
                                                   ", with what the workers of this host have "
                                                   "taken and not filled yet,");
}

shm::Header& LocalFabric::header(int rank) const {
  return rank == options_.rank ? own_->header()
                               : peers_[static_cast<std::size_t>(rank)]->segment->header();
}

void LocalFabric::ring(int peer) { shm::ring(header(peer), state(peer).bell.get()); }

void LocalFabric::ring_all() {
  for (int r = 0; r < size(); ++r)
    if (r != rank() && static_cast<std::size_t>(r) < peers_.size()) ring(r);
}

std::string LocalFabric::trouble_with(int peer, bool look) {
  PeerState& other = state(peer);
  if (look && !other.dead && other.process.valid()) {
    pollfd ended{other.process.get(), POLLIN, 0};
    other.dead = ::poll(&ended, 1, 0) > 0;
  }
  switch (header(peer).presence.load(std::memory_order_acquire)) {
    case Presence::failed:
      return fmt::format("which failed: {}", header(peer).failure);
    case Presence::left:
      return "which has left the run" + failure_besides(peer);
    case Presence::here:
      break;
  }
  return other.dead ? fmt::format("which died (process {})", other.pid) : "";
}

// A rank that leaves may do so because another has failed: that is what the user needs to know.
std::string LocalFabric::failure_besides(int peer) {
  for (int each = 0; each < size(); ++each)
    if (each != peer && each != rank() &&
        header(each).presence.load(std::memory_order_acquire) == Presence::failed)
      return fmt::format("; rank {} failed: {}", named(each), header(each).failure);
  return "";
}

// A sign that is only passed on keeps its time, so that workers who wait for each other cannot keep
// each other waiting for ever.
Time LocalFabric::last_sign(int peer) {
  PeerState& other = state(peer);
  const std::int64_t sign = header(peer).progress_ns.load(std::memory_order_relaxed);
  if (sign <= other.sign_ns) return other.heard;
  other.sign_ns = sign;
  other.heard = loop().now();
  pass_on(Time(Duration(sign)));
  return other.heard;
}

Time LocalFabric::latest_sign() const {
  return Time(Duration(own_->header().progress_ns.load(std::memory_order_relaxed)));
}

void LocalFabric::pass_on(Time at) {
  const std::int64_t sign = at.time_since_epoch().count();
  auto& own = own_->header().progress_ns;
  std::int64_t known = own.load(std::memory_order_relaxed);
  while (known < sign && !own.compare_exchange_weak(known, sign, std::memory_order_relaxed)) {
  }
}

std::unique_ptr<Carrier::Line> LocalFabric::open_line(int peer, Channel channel, bool outgoing) {
  Mailbox& box =
      outgoing ? own_->mailbox(peer, channel) : state(peer).segment->mailbox(rank(), channel);
  return std::make_unique<LocalLine>(*this, peer, channel, outgoing, box);
}

// What does not lie in shared memory is sent from a copy that does.
Letter LocalFabric::letter(LocalLine& line, Span data) {
  auto place = own_->place_of(data);
  if (!place) {
    line.staged.push_back({line.serving, allocate_on(Device::cpu, data.count, data.type)});
    const Span staged = line.staged.back().memory->span();
    copy(staged, data);
    place = own_->place_of(staged);
  }
  const Time left_at = egress_.pass(loop().now(), data.bytes());
  return {*place, left_at.time_since_epoch().count(), 0};
}

bool LocalFabric::try_post(const Operation&, Line& any, Span data) {
  auto& line = static_cast<LocalLine&>(any);
  Mailbox& box = line.box;
  const std::uint64_t number = line.serving;
  if (number >= box.taken.load(std::memory_order_acquire) + shm::kMailDepth) return false;
  box.letters[number % shm::kMailDepth] =
      data.device.kind == Device::gpu ? device_letter(line, data) : letter(line, data);
  box.posted.store(number + 1, std::memory_order_release);
  came_further();
  ring(line.index);
  count_sent(data.bytes());
  return true;
}

Task<> LocalFabric::wait_for_room(const Operation& operation, Line& any) {
  const auto& line = static_cast<LocalLine&>(any);
  const auto room = [&line] {
    return line.serving < line.box.taken.load(std::memory_order_acquire) + shm::kMailDepth;
  };
  co_await wait_for(operation, line.index, room, [&line] { return line.box.refused.load() != 0; });
}

bool LocalFabric::all_taken(Line& any) {
  auto& line = static_cast<LocalLine&>(any);
  if (line.box.taken.load(std::memory_order_acquire) < line.serving) return false;
  wait_for_readers(line);
  line.let_go(line.serving);
  return true;
}

Task<> LocalFabric::wait_until_taken(const Operation& operation, Line& any,
                                     std::uint64_t messages) {
  auto& line = static_cast<LocalLine&>(any);
  const auto taken = [&line, messages] {
    return line.box.taken.load(std::memory_order_acquire) >= messages;
  };
  co_await wait_for(operation, line.index, taken,
                    [&line] { return !line.broken.empty() || line.box.refused.load() != 0; });
  wait_for_readers(line);
  line.let_go(messages);
}

// The sender may take its message back while it is being read; so that is asked once more when it
// has been.
Task<> LocalFabric::take(const Operation& operation, Line& any, Span into, Combine combine) {
  auto& line = static_cast<LocalLine&>(any);
  Mailbox& box = line.box;
  const std::uint64_t number = line.serving;
  const auto withdrawn = [&box] { return box.withdrawn.load(std::memory_order_acquire) != 0; };
  const auto there = [&] {
    return box.posted.load(std::memory_order_acquire) > number && !withdrawn();
  };
  co_await wait_for(operation, line.index, there, withdrawn);
  const Letter letter = box.letters[number % shm::kMailDepth];
  if (letter.place.bytes != into.bytes()) {
    const std::string text =
        fmt::format("{}: rank {} sent {} bytes, rank {} expects {}", describe(operation), line.peer,
                    letter.place.bytes, named(rank()), into.bytes());
    fail(text);
    throw IoError(text, line.peer);
  }
  if (options_.link.on()) {
    const Time first_byte = Time(Duration(letter.left_at_ns)) + options_.link.latency;
    const Time complete =
        ingress_.pass(first_byte, into.bytes()) + options_.link.transfer(into.bytes());
    for (Time now = loop().now(); now < complete; now = loop().now()) {
      co_await loop().sleep_until(std::min(complete, now + shm::Doorbell::kLookAround));
      came_further();
    }
  }
  if (letter.ready != 0)
    co_await take_from_device(operation, line, letter, into, combine);
  else
    take_from_host(line, letter, into, combine);
  shm::end_reading(own_->header());
  // The sender leaves its memory to who has taken it before it said so: that is asked last.
  const auto check_valid = [&] {
    if (withdrawn())
      throw IoError(fmt::format("{}: rank {} has given it up", describe(operation), line.peer),
                    line.peer);
  };
  check_valid();
  box.taken.store(number + 1, std::memory_order_seq_cst);
  check_valid();
  came_further();
  ring(line.index);
}

// What goes to a device goes there later, from memory that stays as it is until then.
void LocalFabric::take_from_host(LocalLine& line, const Letter& letter, Span into,
                                 Combine combine) {
  const Span sent = state(line.index).segment->at(letter.place, into.type);
  if (into.device.kind == Device::gpu) {
    auto arrived = allocate_staging(into.count, into.type);
    copy(arrived->span(), sent);
    return bring(line, std::move(arrived), into, combine);
  }
  combine == Combine::add ? add(into, sent) : copy(into, sent);
}

void LocalFabric::close_line(Line& any) {
  auto& line = static_cast<LocalLine&>(any);
  (line.outgoing ? line.box.withdrawn : line.box.refused).exchange(1, std::memory_order_seq_cst);
  if (line.outgoing) wait_for_readers(line);
  line.staged.clear();
  ring(line.index);
  doorbell_.bell().notify_all();
}

}  // namespace skein

#include "fabric/fabric.h"

#include <fmt/format.h>

#include <algorithm>

#include "fabric/collectives.h"
#include "fabric/half.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr Duration kGrace = std::chrono::milliseconds(100);

Task<> half_all_reduce(Fabric& fabric, const Operation& operation, Span buffer) {
  co_await half_reduce_scatter(fabric, operation, buffer);
  co_await half_all_gather(fabric, operation, buffer);
}

}  // namespace

Range shard(std::size_t count, int size, int rank) {
  constexpr std::size_t kAlign = 16;
  const auto n = static_cast<std::size_t>(size);
  const std::size_t part = (count + n * kAlign - 1) / (n * kAlign) * kAlign;
  const std::size_t begin = std::min(count, part * static_cast<std::size_t>(rank));
  return {begin, std::min(part, count - begin)};
}

std::string describe(const Operation& operation) {
  return fmt::format("{} (channel {}, operation {})", operation.name, operation.channel,
                     operation.sequence);
}

struct Fabric::Turns {
  explicit Turns(Loop& loop) : changed(loop) {}
  std::uint64_t started = 0;
  std::uint64_t serving = 0;
  std::string broken;  // why, once an operation has failed
  int broken_by = -1;  // the peer that the first IoError named
  Signal changed;
};

Fabric::Fabric(Loop& loop) : loop_(loop) {
  for (auto& turns : turns_) turns = std::make_unique<Turns>(loop);
}

Fabric::~Fabric() = default;

std::optional<bool> Fabric::expel(int) { return std::nullopt; }
bool Fabric::expelled(int) const { return false; }

Operation Fabric::begin(const char* name, Channel channel, Deadline deadline) {
  SKEIN_CHECK(channel >= 0 && channel < kChannels, "channel {} of {}", channel, kChannels);
  return {name, channel, turns_[static_cast<std::size_t>(channel)]->started++, deadline};
}

// Ends the turn however the operation ends; an operation that did not succeed breaks its channel,
// since peers will go on with it and the order would no longer agree.
class Fabric::Turn {
 public:
  Turn(Turns& turns, const Operation& operation) : turns_(turns), operation_(operation) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!succeeded && turns_.broken.empty()) turns_.broken = describe(operation_);
    ++turns_.serving;
    turns_.changed.notify_all();
  }
  bool succeeded = false;

 private:
  Turns& turns_;
  const Operation& operation_;
};

Task<> Fabric::in_turn(Operation operation, Task<> body) {
  Turns& turns = *turns_[static_cast<std::size_t>(operation.channel)];
  // A wait that is called off here breaks the channel too, and later operations with it.
  try {
    // Past the deadline the operation before gets a moment to end by itself: its error names a
    // peer.
    bool late = false;
    while (turns.serving != operation.sequence && turns.broken.empty()) {
      if (co_await turns.changed.wait(late ? loop_.now() + kGrace : operation.deadline)) continue;
      if (late)
        throw IoError(fmt::format(
            "{} did not start by its deadline: an earlier operation on the channel goes on",
            describe(operation)));
      late = true;
    }
  } catch (...) {
    if (turns.broken.empty()) turns.broken = describe(operation);
    turns.changed.notify_all();
    throw;
  }
  if (!turns.broken.empty())
    throw IoError(fmt::format("{} cannot run: {} on the same channel did not end well",
                              describe(operation), turns.broken),
                  turns.broken_by);
  Turn turn(turns, operation);
  try {
    co_await body;
  } catch (const IoError& error) {
    if (turns.broken_by < 0) turns.broken_by = error.peer();
    throw;
  }
  turn.succeeded = true;
}

Task<> Fabric::reduce_scatter(Channel channel, Span buffer, Deadline deadline, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("reduce_scatter", channel, deadline);
  Task<> body = wire == Wire::bf16 ? half_reduce_scatter(*this, operation, buffer)
                                   : run_reduce_scatter(operation, buffer);
  co_await in_turn(operation, std::move(body));
}

Task<> Fabric::all_gather(Channel channel, Span buffer, Deadline deadline, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("all_gather", channel, deadline);
  Task<> body = wire == Wire::bf16 ? half_all_gather(*this, operation, buffer)
                                   : run_all_gather(operation, buffer);
  co_await in_turn(operation, std::move(body));
}

Task<> Fabric::all_reduce(Channel channel, Span buffer, Deadline deadline, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("all_reduce", channel, deadline);
  Task<> body = wire == Wire::bf16 ? half_all_reduce(*this, operation, buffer)
                                   : run_all_reduce(operation, buffer);
  co_await in_turn(operation, std::move(body));
}

Task<> Fabric::all_reduce_small(Channel channel, Span buffer, Deadline deadline) {
  if (size() == 1) co_return;
  const Operation operation = begin("all_reduce_small", channel, deadline);
  co_await in_turn(operation, run_all_reduce_small(operation, buffer));
}

Task<> Fabric::broadcast(Channel channel, Span buffer, int root, Deadline deadline) {
  SKEIN_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  if (size() == 1) co_return;
  const Operation operation = begin("broadcast", channel, deadline);
  co_await in_turn(operation, run_broadcast(operation, buffer, root));
}

Task<> Fabric::barrier(Channel channel, Deadline deadline) {
  if (size() == 1) co_return;
  float nothing = 0;
  const Operation operation = begin("barrier", channel, deadline);
  co_await in_turn(operation, run_all_reduce_small(operation, {&nothing, 1}));
}

Task<> Fabric::send(Channel channel, int peer, Span data, Deadline deadline) {
  SKEIN_CHECK(peer >= 0 && peer < size() && peer != rank(), "send to rank {} of {}", peer, size());
  const Operation operation{"send", channel, 0, deadline};
  co_await start_send(operation, peer, data);
  co_await finish_sends(operation, peer);
}

Task<> Fabric::receive(Channel channel, int peer, Span into, Deadline deadline) {
  SKEIN_CHECK(peer >= 0 && peer < size() && peer != rank(), "receive from rank {} of {}", peer,
              size());
  const Operation operation{"receive", channel, 0, deadline};
  co_await receive_into(operation, peer, into, Combine::copy);
}

Task<> Fabric::exchange(Channel channel, int peer, Span out, Span in, Deadline deadline) {
  SKEIN_CHECK(peer >= 0 && peer < size() && peer != rank(), "exchange with rank {} of {}", peer,
              size());
  const Operation operation{"exchange", channel, 0, deadline};
  co_await start_send(operation, peer, out);
  co_await receive_into(operation, peer, in, Combine::copy);
  co_await finish_sends(operation, peer);
}

Task<> Fabric::run_reduce_scatter(const Operation& operation, Span buffer) {
  co_await ring_pass(*this, operation, buffer, rank() - 1, size() - 1, size() - 1);
}

Task<> Fabric::run_all_gather(const Operation& operation, Span buffer) {
  co_await ring_pass(*this, operation, buffer, rank(), size() - 1, 0);
}

Task<> Fabric::run_all_reduce(const Operation& operation, Span buffer) {
  co_await ring_pass(*this, operation, buffer, rank() - 1, 2 * (size() - 1), size() - 1);
}

Task<> Fabric::run_all_reduce_small(const Operation& operation, Span buffer) {
  co_await recursive_doubling(*this, operation, buffer);
}

Task<> Fabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  co_await tree_broadcast(*this, operation, buffer, root);
}

}  // namespace skein

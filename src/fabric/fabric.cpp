#include "fabric/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <string_view>

#include "fabric/collectives.h"
#include "fabric/half.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr Duration kGrace = std::chrono::milliseconds(100);

}  // namespace

Range shard(std::size_t count, int size, int rank) {
  constexpr std::size_t kAlign = 16;
  const auto n = static_cast<std::size_t>(size);
  const std::size_t part = (count + n * kAlign - 1) / (n * kAlign) * kAlign;
  const std::size_t begin = std::min(count, part * static_cast<std::size_t>(rank));
  return {begin, std::min(part, count - begin)};
}

std::string describe(const Operation& operation) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kWords{
      {{"reduce_scatter", "summing over all workers, to each its part (reduce_scatter)"},
       {"all_gather", "collecting the parts of all workers (all_gather)"},
       {"all_reduce", "summing over all workers (all_reduce)"},
       {"combine", "collecting what all workers say of themselves (combine)"},
       {"broadcast", "handing out one worker's values (broadcast)"},
       {"barrier", "waiting for all workers (barrier)"}}};
  for (const auto& [name, words] : kWords)
    if (operation.name == name) return std::string(words);
  return operation.name;
}

TooLate::TooLate(const Operation& operation, int peer)
    : IoError(
          operation.limit.by_silence()
              ? fmt::format("{}: rank {} has been silent for too long", describe(operation), peer)
              : fmt::format("{}: rank {} did not answer by the deadline", describe(operation),
                            peer),
          peer) {}

struct Fabric::Turns {
  explicit Turns(Loop& loop) : changed(loop) {}
  std::uint64_t started = 0;
  std::uint64_t serving = 0;  // who may begin
  std::uint64_t ended = 0;
  std::string broken;  // why, once an operation has failed
  int broken_by = -1;  // the peer that the first IoError named
  Signal changed;

  IoError cannot_run(const Operation& operation) const {
    return IoError(
        fmt::format("{} cannot run: {} before it did not end well", describe(operation), broken),
        broken_by);
  }
};

Fabric::Fabric(Loop& loop) : loop_(loop) {}

Fabric::~Fabric() {
  if (!kept_.empty() && loop_.queue()) loop_.queue()->finish();
}

std::unique_ptr<Memory> Fabric::allocate_like(Span like, std::size_t count, Type type) {
  if (like.device == Device::absent) return allocate_absent_of(type, count);
  return like.device == Device::cpu ? allocate_on_host(count, type) : allocate(count, type);
}

std::unique_ptr<Memory> Fabric::allocate(std::size_t count, Type type) {
  return loop_.queue() && type != Type::byte ? allocate_on_device(count, type)
                                             : allocate_on_host(count, type);
}

std::optional<bool> Fabric::expel(int) { return std::nullopt; }
bool Fabric::expelled(int) const { return false; }

Channel Fabric::allot_channels() {
  if (next_channels_ + kChannelBlock > kMostHandedOut)
    throw ConfigError(fmt::format(
        "{} models have been distributed in this run: a run takes no more, since each keeps its "
        "channels to the end",
        kMostHandedOut / kChannelBlock - 1));
  next_channels_ += kChannelBlock;
  return next_channels_ - kChannelBlock;
}

Fabric::Turns& Fabric::turns(Channel channel) {
  SKEIN_CHECK(channel >= 0 && channel < kMostChannels, "channel {} of {}", channel, kMostChannels);
  const auto at = static_cast<std::size_t>(channel);
  if (turns_.size() <= at) turns_.resize(at + 1);
  if (!turns_[at]) turns_[at] = std::make_unique<Turns>(loop_);
  return *turns_[at];
}

Operation Fabric::begin(const char* name, Channel channel, Limit limit) {
  return {name, channel, turns(channel).started++, limit, true};
}

// Ends the turn however the operation ends; an operation that did not succeed breaks its channel,
// since peers will go on with it and the order would no longer agree.
class Fabric::Turn {
 public:
  Turn(Fabric& fabric, Turns& turns, const Operation& operation)
      : fabric_(fabric), turns_(turns), operation_(operation) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!succeeded && turns_.broken.empty()) turns_.broken = describe(operation_);
    if (!succeeded && begun) fabric_.give_up_sends(operation_);
    if (begun) fabric_.next_may_begin(operation_);
    ++turns_.ended;
    turns_.changed.notify_all();
  }
  bool begun = false, succeeded = false;

 private:
  Fabric& fabric_;
  Turns& turns_;
  const Operation& operation_;
};

void Fabric::next_may_begin(const Operation& operation) {
  Turns& turns = this->turns(operation.channel);
  if (turns.serving > operation.sequence) return;
  turns.serving = operation.sequence + 1;
  turns.changed.notify_all();
}

Task<> Fabric::in_turn(Operation operation, Task<> body) {
  Turns& turns = this->turns(operation.channel);
  // One that is called off while it waits breaks the channel too, and later operations with it.
  Turn turn(*this, turns, operation);
  // The operations before end by themselves, and one that waits for a silent peer says which. Past
  // a deadline they get a moment to do so.
  bool late = false;
  const Deadline deadline = operation.limit.by_silence() ? kNever : operation.limit.end({}, {});
  while (turns.serving != operation.sequence && turns.broken.empty()) {
    const bool changed = co_await turns.changed.wait(late ? loop_.now() + kGrace : deadline);
    if (changed) continue;
    if (late)
      throw IoError(fmt::format("{} did not start by its deadline: an earlier operation goes on",
                                describe(operation)));
    late = true;
  }
  if (!turns.broken.empty()) throw turns.cannot_run(operation);
  turn.begun = true;
  std::exception_ptr closed;
  int closed_to = -1;
  try {
    co_await body;
  } catch (const LineClosed& error) {
    closed = std::current_exception();
    closed_to = error.peer();
  } catch (const IoError& error) {
    if (turns.broken_by < 0) turns.broken_by = error.peer();
    throw;
  }
  // Earlier operations may still be running, and end first. If one of them closed the line that
  // this one needed, its error names the lost rank.
  while (turns.ended < operation.sequence && turns.broken.empty()) co_await turns.changed.wait();
  if (closed && !turns.broken.empty()) throw turns.cannot_run(operation);
  if (closed) {
    turns.broken_by = closed_to;
    std::rethrow_exception(closed);
  }
  turn.succeeded = true;
}

Task<> Fabric::reduce_scatter(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("reduce_scatter", channel, limit);
  co_await in_turn(operation, run_reduce_scatter(operation, buffer, wire));
}

Task<> Fabric::all_gather(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("all_gather", channel, limit);
  co_await in_turn(operation, run_all_gather(operation, buffer, wire));
}

Task<> Fabric::all_reduce(Channel channel, Span buffer, Limit limit, Wire wire) {
  if (size() == 1) co_return;
  const Operation operation = begin("all_reduce", channel, limit);
  co_await in_turn(operation, run_all_reduce(operation, buffer, wire));
}

Task<> Fabric::combine(Channel channel, Span record, const Merge& merge, Limit limit) {
  SKEIN_CHECK(record.type == Type::byte, "a record that is not bytes");
  if (size() == 1) co_return;
  const Operation operation = begin("combine", channel, limit);
  co_await in_turn(operation, run_combine(operation, record, merge));
}

Task<> Fabric::broadcast(Channel channel, Span buffer, int root, Limit limit) {
  SKEIN_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  if (size() == 1) co_return;
  const Operation operation = begin("broadcast", channel, limit);
  co_await in_turn(operation, run_broadcast(operation, buffer, root));
}

Task<> Fabric::barrier(Channel channel, Limit limit) {
  if (size() == 1) co_return;
  std::byte nothing{};
  const Merge merge = [](auto, auto) {};
  const Operation operation = begin("barrier", channel, limit);
  co_await in_turn(operation, run_combine(operation, message_of({&nothing, 1}), merge));
}

Task<> Fabric::run_reduce_scatter(const Operation& operation, Span buffer, Wire wire) {
  if (wire == Wire::bf16)
    co_await half_reduce_scatter(*this, operation, buffer);
  else
    co_await ring_pass(*this, operation, buffer, rank() - 1, size() - 1, size() - 1);
}

Task<> Fabric::run_all_gather(const Operation& operation, Span buffer, Wire wire) {
  if (wire == Wire::bf16)
    co_await half_all_gather(*this, operation, buffer);
  else
    co_await ring_pass(*this, operation, buffer, rank(), size() - 1, 0);
}

Task<> Fabric::run_all_reduce(const Operation& operation, Span buffer, Wire wire) {
  if (wire == Wire::bf16) {
    co_await half_all_reduce(*this, operation, buffer);
  } else {
    co_await ring_pass(*this, operation, buffer, rank() - 1, 2 * (size() - 1), size() - 1);
  }
}

Task<> Fabric::run_combine(const Operation& operation, Span record, const Merge& merge) {
  co_await recursive_doubling(*this, operation, record, merge);
}

Task<> Fabric::run_broadcast(const Operation& operation, Span buffer, int root) {
  co_await tree_broadcast(*this, operation, buffer, root);
}

}  // namespace skein

#include "fabric/turns.h"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "core/check.h"
#include "core/loop.h"
#include "core/on_exit.h"
#include "fabric/fabric.h"

namespace skein {
namespace {

constexpr Duration kGrace = std::chrono::milliseconds(100);

}  // namespace

struct Turns::Queue {
  explicit Queue(Loop& loop) : changed(loop) {}
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

Turns::Turns(Fabric& fabric) : fabric_(fabric) {}
Turns::~Turns() = default;

Turns::Queue& Turns::queue(Channel channel) {
  SKEIN_CHECK(channel >= 0 && channel < kMostChannels, "channel {} of {}", channel, kMostChannels);
  const auto at = static_cast<std::size_t>(channel);
  if (queues_.size() <= at) queues_.resize(at + 1);
  if (!queues_[at]) queues_[at] = std::make_unique<Queue>(fabric_.loop());
  return *queues_[at];
}

Operation Turns::begin(const char* name, Channel channel, Limit limit) {
  return {name, channel, queue(channel).started++, limit, true};
}

void Turns::next_may_begin(const Operation& operation) {
  Queue& queue = this->queue(operation.channel);
  if (queue.serving > operation.sequence) return;
  queue.serving = operation.sequence + 1;
  queue.changed.notify_all();
}

Task<> Turns::run(Operation operation, Task<> body) {
  Queue& queue = this->queue(operation.channel);
  // An operation that did not succeed breaks its channel, since peers will go on with it and the
  // order would no longer agree. So does one that is called off while it waits.
  bool begun = false, succeeded = false;
  const OnExit ends([&] {
    if (!succeeded && queue.broken.empty()) queue.broken = describe(operation);
    if (!succeeded && begun) fabric_.give_up_sends(operation);
    if (begun) next_may_begin(operation);
    ++queue.ended;
    queue.changed.notify_all();
  });
  // The operations before end by themselves, and one that waits for a silent peer says which. Past
  // a deadline they get a moment to do so.
  bool late = false;
  const Deadline deadline = operation.limit.by_silence() ? kNever : operation.limit.end({}, {});
  while (queue.serving != operation.sequence && queue.broken.empty()) {
    const bool changed =
        co_await queue.changed.wait(late ? fabric_.loop().now() + kGrace : deadline);
    if (changed) continue;
    if (late)
      throw IoError(fmt::format("{} did not start by its deadline: an earlier operation goes on",
                                describe(operation)));
    late = true;
  }
  if (!queue.broken.empty()) throw queue.cannot_run(operation);
  begun = true;
  std::exception_ptr closed;
  int closed_to = -1;
  try {
    co_await body;
  } catch (const LineClosed& error) {
    closed = std::current_exception();
    closed_to = error.peer();
  } catch (const IoError& error) {
    if (queue.broken_by < 0) queue.broken_by = error.peer();
    throw;
  }
  // Earlier operations may still be running, and end first. If one of them closed the line that
  // this one needed, its error names the lost rank.
  while (queue.ended < operation.sequence && queue.broken.empty()) co_await queue.changed.wait();
  if (closed && !queue.broken.empty()) throw queue.cannot_run(operation);
  if (closed) {
    queue.broken_by = closed_to;
    std::rethrow_exception(closed);
  }
  succeeded = true;
}

}  // namespace skein

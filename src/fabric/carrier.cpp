#include "fabric/carrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/on_exit.h"
#include "kernels/kernels.h"

namespace skein {

namespace {

std::uint64_t key_of(int peer, Channel channel) {
  return static_cast<std::uint64_t>(peer) * kMostChannels + static_cast<std::uint64_t>(channel);
}

}  // namespace

Carrier::~Carrier() {
  if (!kept_.empty() && loop_.queue()) loop_.queue()->finish();
}

Carrier::Line& Carrier::line_to(int peer, Channel channel) {
  auto& found = outgoing_[key_of(peer, channel)];
  if (!found) found = open_line(peer, channel, true);
  return *found;
}

Carrier::Line& Carrier::line_from(int peer, Channel channel) {
  auto& found = incoming_[key_of(peer, channel)];
  if (!found) found = open_line(peer, channel, false);
  return *found;
}

void Carrier::check_open(const Operation& operation, const Line& line) {
  if (line.broken.empty()) return;
  throw LineClosed(
      fmt::format("{} {} rank {} cannot run: {} before it did not end well", describe(operation),
                  line.outgoing ? "to" : "from", line.peer, line.broken),
      line.peer);
}

// Peers would go on with the line, and the order would no longer agree.
void Carrier::give_up(Line& line, const Operation& operation) {
  if (!line.broken.empty()) return;
  line.broken = describe(operation);
  close_line(line);
  line.changed.notify_all();
}

void Carrier::give_up_untaken(int peer, Channel channel, const Operation& operation) {
  const auto found = outgoing_.find(key_of(peer, channel));
  if (found != outgoing_.end() && !all_taken(*found->second)) give_up(*found->second, operation);
}

Task<> Carrier::in_turn(const Operation& operation, Line& line, std::uint64_t number) {
  const Time begin = loop_.now();
  while (line.serving != number) {
    // Those before end by themselves, or break the line.
    const Deadline deadline =
        operation.limit.by_silence() ? kNever : operation.limit.end(begin, {});
    const bool changed = co_await line.changed.wait(deadline);
    check_open(operation, line);
    if (!changed && line.serving != number) throw TooLate(operation, line.peer);
  }
}

// A copy in memory of the host for what is on a device. Work on the queue may use it longer than
// whoever made it is there: then the carrier keeps it.
class Carrier::Staging {
 public:
  Staging(Carrier& carrier, std::unique_ptr<Memory> memory)
      : carrier_(carrier), memory_(std::move(memory)) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    if (memory_ && !reached(mark_)) carrier_.keep_until(std::move(mark_), std::move(memory_));
  }

  Span span() const { return memory_->span(); }
  void used_on(Queue& queue) { mark_ = queue.record(); }
  const Mark& mark() const { return mark_; }
  std::unique_ptr<Memory> release() { return std::move(memory_); }

 private:
  Carrier& carrier_;
  std::unique_ptr<Memory> memory_;
  Mark mark_;
};

void Carrier::keep_until(Mark mark, std::unique_ptr<Memory> memory) {
  std::erase_if(kept_, [](const Kept& each) { return reached(each.mark); });
  kept_.push_back({std::move(mark), std::move(memory)});
}

// A message leaves when the host has it; the next is copied while those before are on their way.
Task<> Carrier::send_staged(const Operation& operation, Line& line, Span data) {
  constexpr std::size_t kMostStaged = 8;
  if (line.staged.size() >= kMostStaged) {
    const std::uint64_t oldest = line.staged.front().number;
    co_await wait_until_taken(operation, line, oldest + 1);
    line.let_go(oldest + 1);
  }
  Staging staging(*this, allocate_staging(data.count, data.type));
  copy(staging.span(), data);
  staging.used_on(*loop_.queue());
  co_await until_reached(loop_, staging.mark());
  check_open(operation, line);
  const Span copied = staging.span();
  line.staged.push_back({line.serving, staging.release()});
  while (!try_post(operation, line, copied)) {
    co_await wait_for_room(operation, line);
    check_open(operation, line);
  }
}

Task<> Carrier::take_staged(const Operation& operation, Line& line, Span into, Combine combine) {
  auto memory = allocate_staging(into.count, into.type);
  co_await take(operation, line, memory->span(), Combine::copy);
  bring(line, std::move(memory), into, combine);
}

// What is to be added arrives in memory of the device that serves again, in the queue's order.
void Carrier::bring(Line& line, std::unique_ptr<Memory> from, Span into, Combine combine) {
  Queue& queue = *loop_.queue();
  Staging staging(*this, std::move(from));
  if (combine == Combine::copy) {
    copy(into, staging.span());
  } else {
    if (!line.arrived || line.arrived->span().count < into.count)
      line.arrived = queue.allocate(into.count, into.type);
    const Span arrived = line.arrived->span().at({0, into.count});
    copy(arrived, staging.span());
    add(into, arrived);
  }
  staging.used_on(queue);
}

Task<> Carrier::start_send_on(Line& line, const Operation& operation, Span data) {
  check_open(operation, line);
  const std::uint64_t number = line.begun++;
  bool passed = false;
  const OnExit breaks([&] {
    if (!passed) give_up(line, operation);
  });
  if (number != line.serving) co_await in_turn(operation, line, number);
  if (!carries(data)) {
    co_await send_staged(operation, line, data);
  } else {
    while (!try_post(operation, line, data)) {
      co_await wait_for_room(operation, line);
      check_open(operation, line);
    }
  }
  ++line.serving;
  passed = true;
  line.changed.notify_all();
}

Task<> Carrier::finish_sends_on(Line& line, const Operation& operation) {
  check_open(operation, line);
  const std::uint64_t all = line.serving;
  if (!all_taken(line)) {
    bool taken = false;
    const OnExit breaks([&] {
      if (!taken) give_up(line, operation);
    });
    co_await wait_until_taken(operation, line, all);
    taken = true;
  }
  line.let_go(all);
}

Task<> Carrier::receive_on(Line& line, const Operation& operation, Span into, Combine combine) {
  check_open(operation, line);
  const std::uint64_t number = line.begun++;
  bool passed = false;
  const OnExit breaks([&] {
    if (!passed) give_up(line, operation);
  });
  if (number != line.serving) co_await in_turn(operation, line, number);
  if (carries(into))
    co_await take(operation, line, into, combine);
  else
    co_await take_staged(operation, line, into, combine);
  ++line.serving;
  passed = true;
  line.changed.notify_all();
}

}  // namespace skein

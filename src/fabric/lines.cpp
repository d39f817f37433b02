// Point to point: messages on a line pass in turn, and one that does not end well breaks the line.
#include <fmt/format.h>

#include <cstdlib>

#include "fabric/fabric.h"
#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

namespace {

std::uint64_t key_of(int peer, Channel channel) {
  return static_cast<std::uint64_t>(peer) * kMostChannels + static_cast<std::uint64_t>(channel);
}

}  // namespace

Fabric::Line& Fabric::line(int peer, Channel channel, bool outgoing) {
  SKEIN_CHECK(peer >= 0 && peer < size() && peer != rank(), "a message {} rank {} of {}",
              outgoing ? "to" : "from", peer, size());
  SKEIN_CHECK(channel >= 0 && channel < kMostChannels, "channel {} of {}", channel, kMostChannels);
  const Route its = route(peer, channel);
  auto& lines = outgoing ? its.carrier.outgoing_ : its.carrier.incoming_;
  auto& found = lines[key_of(its.peer, its.channel)];
  if (!found) found = its.carrier.open_line(its.peer, its.channel, outgoing);
  return *found;
}

void Fabric::not_its_line(int peer) const {
  SKEIN_CHECK(false, "fabric {} carries no line to rank {}", name(), peer);
  std::abort();
}

std::unique_ptr<Fabric::Line> Fabric::open_line(int peer, Channel, bool) { not_its_line(peer); }
bool Fabric::try_post(const Operation&, Line& line, Span) { not_its_line(line.peer); }
Task<> Fabric::wait_for_room(const Operation&, Line& line) { not_its_line(line.peer); }
bool Fabric::all_taken(Line& line) { not_its_line(line.peer); }
Task<> Fabric::wait_until_taken(const Operation&, Line& line, std::uint64_t) {
  not_its_line(line.peer);
}
Task<> Fabric::take(const Operation&, Line& line, Span, Combine) { not_its_line(line.peer); }
void Fabric::close_line(Line& line) { not_its_line(line.peer); }

void Fabric::check_open(const Operation& operation, const Line& line) {
  if (line.broken.empty()) return;
  throw LineClosed(
      fmt::format("{} {} rank {} cannot run: {} before it did not end well", describe(operation),
                  line.outgoing ? "to" : "from", line.peer, line.broken),
      line.peer);
}

// What one message does on its line: unless it ends well the line breaks, since peers would go on
// with it and the order would no longer agree.
class Fabric::Passage {
 public:
  Passage(Fabric& fabric, Line& line, const Operation& operation)
      : fabric_(fabric), line_(line), operation_(operation) {}
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;
  ~Passage() {
    if (!succeeded) fabric_.give_up(line_, operation_);
  }
  bool succeeded = false;

 private:
  Fabric& fabric_;
  Line& line_;
  const Operation& operation_;
};

void Fabric::give_up(Line& line, const Operation& operation) {
  if (!line.broken.empty()) return;
  line.broken = describe(operation);
  line.carrier.close_line(line);
  line.changed.notify_all();
}

// What a collective has on its way goes with it.
void Fabric::give_up_sends(const Operation& operation) {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const Route its = route(peer, operation.channel);
    const auto found = its.carrier.outgoing_.find(key_of(its.peer, its.channel));
    if (found != its.carrier.outgoing_.end() && !its.carrier.all_taken(*found->second))
      give_up(*found->second, operation);
  }
}

Task<> Fabric::in_turn(const Operation& operation, Line& line, std::uint64_t number) {
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
// whoever made it is there: then the fabric keeps it.
class Fabric::Staging {
 public:
  Staging(Fabric& fabric, std::unique_ptr<Memory> memory)
      : fabric_(fabric), memory_(std::move(memory)) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    if (memory_ && !reached(mark_)) fabric_.keep_until(std::move(mark_), std::move(memory_));
  }

  Span span() const { return memory_->span(); }
  void used_on(Queue& queue) { mark_ = queue.record(); }
  const Mark& mark() const { return mark_; }
  std::unique_ptr<Memory> release() { return std::move(memory_); }

 private:
  Fabric& fabric_;
  std::unique_ptr<Memory> memory_;
  Mark mark_;
};

void Fabric::keep_until(Mark mark, std::unique_ptr<Memory> memory) {
  std::erase_if(kept_, [](const Kept& each) { return reached(each.mark); });
  kept_.push_back({std::move(mark), std::move(memory)});
}

// A message leaves when the host has it; the next is copied while those before are on their way.
Task<> Fabric::send_staged(const Operation& operation, Line& line, Span data) {
  constexpr std::size_t kMostStaged = 8;
  if (line.staged.size() >= kMostStaged) {
    const std::uint64_t oldest = line.staged.front().number;
    co_await line.carrier.wait_until_taken(operation, line, oldest + 1);
    line.let_go(oldest + 1);
  }
  Staging staging(*this, line.carrier.allocate_staging(data.count, data.type));
  copy(staging.span(), data);
  staging.used_on(*loop_.queue());
  co_await until_reached(loop_, staging.mark());
  check_open(operation, line);
  const Span copied = staging.span();
  line.staged.push_back({line.serving, staging.release()});
  while (!line.carrier.try_post(operation, line, copied)) {
    co_await line.carrier.wait_for_room(operation, line);
    check_open(operation, line);
  }
}

Task<> Fabric::take_staged(const Operation& operation, Line& line, Span into, Combine combine) {
  auto memory = line.carrier.allocate_staging(into.count, into.type);
  co_await line.carrier.take(operation, line, memory->span(), Combine::copy);
  bring(line, std::move(memory), into, combine);
}

// What is to be added arrives in memory of the device that serves again, in the queue's order.
void Fabric::bring(Line& line, std::unique_ptr<Memory> from, Span into, Combine combine) {
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

Task<> Fabric::start_send(const Operation& operation, int peer, Span data) {
  Line& line = this->line(peer, operation.channel, true);
  check_open(operation, line);
  const std::uint64_t number = line.begun++;
  Passage passage(*this, line, operation);
  if (number != line.serving) co_await in_turn(operation, line, number);
  if (!line.carrier.carries(data)) {
    co_await send_staged(operation, line, data);
  } else {
    while (!line.carrier.try_post(operation, line, data)) {
      co_await line.carrier.wait_for_room(operation, line);
      check_open(operation, line);
    }
  }
  ++line.serving;
  passage.succeeded = true;
  line.changed.notify_all();
}

Task<> Fabric::finish_sends(const Operation& operation, int peer) {
  Line& line = this->line(peer, operation.channel, true);
  check_open(operation, line);
  const std::uint64_t all = line.serving;
  if (!line.carrier.all_taken(line)) {
    Passage passage(*this, line, operation);
    co_await line.carrier.wait_until_taken(operation, line, all);
    passage.succeeded = true;
  }
  line.let_go(all);
}

Task<> Fabric::receive_into(const Operation& operation, int peer, Span into, Combine combine) {
  Line& line = this->line(peer, operation.channel, false);
  check_open(operation, line);
  const std::uint64_t number = line.begun++;
  Passage passage(*this, line, operation);
  if (number != line.serving) co_await in_turn(operation, line, number);
  if (line.carrier.carries(into))
    co_await line.carrier.take(operation, line, into, combine);
  else
    co_await take_staged(operation, line, into, combine);
  ++line.serving;
  passage.succeeded = true;
  line.changed.notify_all();
}

Fabric::Sending::~Sending() {
  if (!open_) return;
  Line& line = fabric_.line(peer_, operation_.channel, true);
  if (!line.carrier.all_taken(line)) fabric_.give_up(line, operation_);
}

Task<> Fabric::Sending::start(Span data) {
  open_ = true;
  co_await fabric_.start_send(operation_, peer_, data);
}

Task<> Fabric::Sending::finish() {
  co_await fabric_.finish_sends(operation_, peer_);
  open_ = false;
}

Task<> Fabric::send(Channel channel, int peer, Span data, Limit limit) {
  const Operation operation{"send", channel, 0, limit};
  co_await start_send(operation, peer, data);
  co_await finish_sends(operation, peer);
}

Task<> Fabric::receive(Channel channel, int peer, Span into, Limit limit) {
  const Operation operation{"receive", channel, 0, limit};
  co_await receive_into(operation, peer, into, Combine::copy);
}

Task<> Fabric::exchange(Channel channel, int peer, Span out, Span in, Limit limit) {
  const Operation operation{"exchange", channel, 0, limit};
  co_await run_exchange(operation, peer, out, in);
}

Task<> Fabric::run_exchange(const Operation& operation, int peer, Span out, Span in) {
  Sending sending(*this, operation, peer);
  co_await sending.start(out);
  co_await receive_into(operation, peer, in, Combine::copy);
  co_await sending.finish();
}

// The message outlives this worker's part in the run where a fabric can: nothing takes it back.
Task<> Fabric::deliver(Operation operation, int peer, std::unique_ptr<Memory> message) {
  try {
    co_await start_send(operation, peer, message->span());
    Line& line = this->line(peer, operation.channel, true);
    co_await line.carrier.wait_until_taken(operation, line, line.serving);
  } catch (const IoError&) {  // nobody waits to hear of it
  }
}

void Fabric::send_and_forget(Channel channel, int peer, Span data) {
  SKEIN_CHECK(data.device == Device::cpu, "only memory of the host is sent and forgotten");
  auto message = allocate_on_heap_of(data.type, data.count);
  copy(message->span(), data);
  loop_.spawn(deliver({"send", channel, 0, kNever}, peer, std::move(message)));
}

}  // namespace skein

#include "strategy/gossip/exchanges.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "skein/error.h"
#include "strategy/gossip/self_running.h"

namespace skein {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLeastDuration = 20ms;
constexpr std::size_t kLatencies = 4096;  // that are remembered

}  // namespace

struct Exchanges::Part {
  std::string name;  // of the optimizer's state; empty: the model
  Span live;
};

// What is sent, and room for a block of what comes. The first is a plane of the arena; others are
// made when exchanges overlap, and kept.
struct Exchanges::Snapshot {
  std::vector<Span> parts;
  std::vector<std::unique_ptr<Memory>> owned;
  std::unique_ptr<Memory> inbox;
  bool used = false;
};

struct Exchanges::Exchange {
  int peer = -1;
  bool own_proposal = false;
  bool detached = false, suspended = false, over = false;
  Time begun{}, expected{};  // when it began, and when it should be over
  Snapshot* snapshot = nullptr;
  bool sent = false;
  std::exception_ptr send_error;
  ScopedJob job;
};

Exchanges::Exchanges(Worker& worker, Channel channel, LiveModel& model, bool states,
                     Signal& changed, Host& host)
    : worker_(worker),
      channel_(channel),
      model_(model),
      states_(states),
      changed_(changed),
      host_(host),
      durations_(worker.patience() / 4, kLeastDuration, worker.patience()) {
  take_snapshot().used = false;  // memory that is always needed is taken at once
}

Exchanges::~Exchanges() = default;

std::vector<Exchanges::Part> Exchanges::parts() const {
  std::vector<Part> all{{"", model_.x()}};
  if (states_)
    for (const auto& [name, vector] : worker_.optimizer().state()) all.push_back({name, vector});
  return all;
}

Exchanges::Snapshot& Exchanges::take_snapshot() {
  for (const auto& each : snapshots_)
    if (!std::exchange(each->used, true)) return *each;
  const bool first = snapshots_.empty();
  Snapshot& made = *snapshots_.emplace_back(std::make_unique<Snapshot>());
  made.used = true;
  const Span model = model_.x();
  const auto allocate = [&](std::size_t count) {
    return worker_.fabric().allocate_like(model, count, Type::f32);
  };
  for (const Part& part : parts()) {
    if (first) {
      made.parts.push_back(worker_.arena().plane("snapshot" + part.name));
    } else {
      made.owned.push_back(allocate(part.live.count));
      made.parts.push_back(made.owned.back()->span());
    }
  }
  made.inbox = allocate(std::min(LiveModel::kBlock, model.count));
  return made;
}

void Exchanges::begin(int peer, bool own_proposal) {
  SKEIN_CHECK(!open_with(peer), "a second exchange with rank {}", peer);
  sweep();
  const Time now = worker_.loop().now();
  Exchange& made = *exchanges_.emplace_back(std::make_unique<Exchange>());
  made.peer = peer;
  made.own_proposal = own_proposal;
  made.begun = now;
  made.expected = now + durations_.limit();
  made.snapshot = &take_snapshot();
  model_.copy_to(made.snapshot->parts.front(), now);
  const auto all = parts();
  for (std::size_t i = 1; i < all.size(); ++i) copy(made.snapshot->parts[i], all[i].live);
  const auto over = [this, &made] {
    made.over = true;
    made.snapshot->used = false;
    changed_.notify_all();
  };
  made.job = ScopedJob(worker_.loop().spawn(run_by_itself(
      run(made),
      [this, &made, over](const std::exception_ptr&) {
        over();
        host_.failed(made.peer);
      },
      [this, over](std::exception_ptr error) {
        over();
        host_.broke(std::move(error));
      })));
}

// Jobs cannot take themselves away.
void Exchanges::sweep() {
  exchanges_.remove_if([](const auto& each) { return each->over && each->job->done(); });
}

Task<> Exchanges::run(Exchange& exchange) {
  const auto sent = [this, &exchange](std::exception_ptr error) {
    exchange.sent = true;
    exchange.send_error = std::move(error);
    changed_.notify_all();
  };
  const ScopedJob sender(worker_.loop().spawn(run_by_itself(send(exchange), sent, sent)));
  co_await receive(exchange);
  co_await wait_until_sent(exchange);
  ended(exchange);
  changed_.notify_all();
}

void Exchanges::ended(Exchange& exchange) {
  const Time now = worker_.loop().now();
  exchange.over = true;
  exchange.snapshot->used = false;
  ++(exchange.own_proposal ? counts_.initiated : counts_.accepted);
  durations_.saw(now - exchange.begun);
  worker_.trace().span(Lane::all_reduce, "averaging", exchange.begun, now);
  const double latency = milliseconds(now - exchange.begun);
  if (latencies_ms_.size() < kLatencies)
    latencies_ms_.push_back(latency);
  else
    latencies_ms_[next_latency_++ % kLatencies] = latency;
}

// Its deadline is the receiver's: what stands still does so in both directions.
Task<> Exchanges::send(Exchange& exchange) {
  const Operation operation{"exchange", channel_, 0, kNever};
  Fabric::Sending sending(worker_.fabric(), operation, exchange.peer);
  for (const Span part : exchange.snapshot->parts)
    for (std::size_t offset = 0; offset < part.count; offset += LiveModel::kBlock) {
      const Range range{offset, std::min(LiveModel::kBlock, part.count - offset)};
      co_await sending.start(part.at(range));
    }
  co_await sending.finish();
  exchange.sent = true;
  changed_.notify_all();
}

Task<> Exchanges::receive(Exchange& exchange) {
  const Snapshot& snapshot = *exchange.snapshot;
  for (std::size_t i = 0; i < snapshot.parts.size(); ++i)
    for (std::size_t offset = 0; offset < snapshot.parts[i].count; offset += LiveModel::kBlock) {
      const Range range{offset, std::min(LiveModel::kBlock, snapshot.parts[i].count - offset)};
      const Span theirs = snapshot.inbox->span().at({0, range.count});
      co_await worker_.fabric().receive(channel_, exchange.peer, theirs, worker_.limit());
      if (!exchange.detached) apply(exchange, i, range, theirs);
    }
}

Task<> Exchanges::wait_until_sent(Exchange& exchange) {
  const Deadline deadline = worker_.deadline();
  while (!exchange.sent) {
    const bool news = co_await changed_.wait(deadline);
    if (!news && !exchange.sent)
      throw IoError(fmt::format("rank {} did not take a model by the deadline", exchange.peer),
                    exchange.peer);
  }
  if (exchange.send_error) std::rethrow_exception(exchange.send_error);
}

void Exchanges::apply(const Exchange& exchange, std::size_t part, Range range, Span theirs) {
  const Span mine = exchange.snapshot->parts[part].at(range);
  if (part == 0) return model_.average(worker_.loop().now(), range.offset, theirs, mine);
  axpy(theirs, -1, mine);
  const Part state = parts()[part];
  const Span live = state.live.at(range);
  axpy(live, 0.5F, theirs);
  // What decayed here meanwhile must not leave a mean of squares below zero.
  if (holds_squares(state.name)) raise_to(live, 0);
}

bool Exchanges::engaged() {
  const Time now = worker_.loop().now();
  bool any = false;
  for (const auto& each : exchanges_) {
    if (each->over || each->suspended) continue;
    each->suspended = now >= each->expected;
    counts_.suspended += each->suspended ? 1 : 0;
    any = any || !each->suspended;
  }
  return any;
}

Time Exchanges::next_suspension() const {
  Time next = kNever;
  for (const auto& each : exchanges_)
    if (!each->over && !each->suspended) next = std::min(next, each->expected);
  return next;
}

bool Exchanges::open() const {
  return std::any_of(exchanges_.begin(), exchanges_.end(),
                     [](const auto& each) { return !each->over; });
}

bool Exchanges::open_with(int peer) const {
  return std::any_of(exchanges_.begin(), exchanges_.end(),
                     [&](const auto& each) { return !each->over && each->peer == peer; });
}

void Exchanges::detach_all() {
  for (const auto& each : exchanges_) each->detached = true;
}

}  // namespace skein

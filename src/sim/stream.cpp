#include "sim/stream.h"

#include "sim/cluster.h"

namespace skein::sim {

Stream::Stream(Cluster& cluster, int from, int to, int channel)
    : cluster_(cluster),
      from_(from),
      to_(to),
      channel_(channel),
      flow_(cluster.traffic().add_flow(cluster.route(from, to), *this)),
      arrival_(cluster.engine().loop(to)),
      departure_(cluster.engine().loop(from)) {}

void Stream::post(Span data) {
  ++posted_;
  cluster_.engine().record(Cluster::kSent, pair_key(), data.bytes());
  messages_.push_back({data.bytes(), data, nullptr});
  if (posted_ - transmitted_ == 1) start_next();
}

void Stream::start_next() {
  if (transmitted_ == posted_) return;
  bytes_left_ = static_cast<double>(message(transmitted_).bytes);
  stalled_ = cluster_.cut(from_, to_);
  if (!stalled_) cluster_.traffic().begin(flow_, bytes_left_);
}

void Stream::reroute() {
  pass_on_words();
  if (transmitted_ == posted_ || cluster_.cut(from_, to_) == stalled_) return;
  stalled_ = !stalled_;
  if (stalled_)
    bytes_left_ = cluster_.traffic().halt(flow_);
  else
    cluster_.traffic().begin(flow_, bytes_left_);
}

void Stream::drop_unsent() {
  if (transmitted_ == posted_) return;
  if (!stalled_) cluster_.traffic().halt(flow_);
  messages_.resize(messages_.size() - (posted_ - transmitted_));
  posted_ = transmitted_;
  stalled_ = false;
}

void Stream::withdraw() {
  drop_unsent();
  withdrawal_ = Word::said;
  pass_on_words();
  departure_.notify_all();
}

void Stream::refuse() {
  refusal_ = Word::said;
  pass_on_words();
  arrival_.notify_all();
}

void Stream::pass_on_words() {
  if (cluster_.cut(from_, to_)) return;
  Engine& engine = cluster_.engine();
  if (withdrawal_ == Word::said) {
    withdrawal_ = Word::under_way;
    last_arrival_ = std::max(last_arrival_, engine.now() + cluster_.delay(from_, to_));
    engine.schedule(last_arrival_, *this, kWithdrawal);
  }
  if (refusal_ == Word::said) {
    refusal_ = Word::under_way;
    engine.schedule(engine.now() + cluster_.delay(to_, from_), *this, kRefusal);
  }
}

void Stream::transmitted() {
  Engine& engine = cluster_.engine();
  Message& left = message(transmitted_++);
  if (left.source.device != Device::absent) left.copy = cluster_.buffers().copy_of(left.source);
  last_arrival_ = std::max(last_arrival_, engine.now() + cluster_.delay(from_, to_));
  engine.schedule(last_arrival_, *this, kMessage);
  start_next();
  if (departure_.awaited()) {
    departure_.notify_all();
    engine.wake(from_);
  }
}

void Stream::happen(std::uint64_t token) {
  if (token == kRefusal) {
    refusal_ = Word::heard;
    return;
  }
  if (token == kWithdrawal) {
    withdrawal_ = Word::heard;
    if (arrival_.awaited()) {
      arrival_.notify_all();
      cluster_.engine().wake(to_);
    }
    return;
  }
  cluster_.engine().record(Cluster::kArrived, pair_key(), message(arrived_++).bytes);
  if (arrival_.awaited()) {
    arrival_.notify_all();
    cluster_.engine().wake(to_);
  }
}

Stream::Message Stream::take() {
  SKEIN_CHECK(taken_ < arrived_, "a message is taken that is not there");
  Message message = std::move(messages_[first_++]);
  ++taken_;
  constexpr std::size_t kMostTaken = 64;  // that are kept before the others move up
  if (first_ == messages_.size() || first_ == kMostTaken) {
    messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  return message;
}

}  // namespace skein::sim

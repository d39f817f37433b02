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
  Message message{data.count, {}};
  if (data.device != Device::absent) {
    message.data = cluster_.take_buffer();
    message.data.assign(data.begin(), data.end());
  }
  ++posted_;
  cluster_.engine().record(Cluster::kSent, pair_key(), data.bytes());
  waiting_.push_back(std::move(message));
  if (waiting_.size() == 1) start_next();
}

void Stream::start_next() {
  if (waiting_.empty()) return;
  bytes_left_ = static_cast<double>(waiting_.front().count * sizeof(float));
  stalled_ = cluster_.cut(from_, to_);
  if (!stalled_) cluster_.traffic().begin(flow_, bytes_left_);
}

void Stream::reroute() {
  if (waiting_.empty() || cluster_.cut(from_, to_) == stalled_) return;
  stalled_ = !stalled_;
  if (stalled_)
    bytes_left_ = cluster_.traffic().halt(flow_);
  else
    cluster_.traffic().begin(flow_, bytes_left_);
}

void Stream::drop_unsent() {
  if (waiting_.empty()) return;
  if (!stalled_) cluster_.traffic().halt(flow_);
  posted_ -= waiting_.size();
  waiting_.clear();
  stalled_ = false;
}

void Stream::transmitted() {
  Engine& engine = cluster_.engine();
  ++transmitted_;
  flying_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  last_arrival_ = std::max(last_arrival_, engine.now() + cluster_.delay(from_, to_));
  engine.schedule(last_arrival_, *this, 0);
  start_next();
  if (departure_.awaited()) {
    departure_.notify_all();
    engine.wake(from_);
  }
}

void Stream::happen(std::uint64_t) {
  Message message = std::move(flying_.front());
  flying_.pop_front();
  ++arrived_;
  cluster_.engine().record(Cluster::kArrived, pair_key(), message.count);
  inbox_.push_back(std::move(message));
  if (arrival_.awaited()) {
    arrival_.notify_all();
    cluster_.engine().wake(to_);
  }
}

Stream::Message Stream::take(std::uint64_t number) {
  SKEIN_CHECK(arrived(number) && number >= inbox_first_, "message {} is not there", number);
  Message message = std::move(inbox_[number - inbox_first_]);
  // One that a cancelled operation left behind stays until the end; later ones go on.
  if (number == inbox_first_) {
    inbox_.pop_front();
    ++inbox_first_;
  }
  return message;
}

}  // namespace skein::sim

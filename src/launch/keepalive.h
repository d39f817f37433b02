// Finds out that the other end of a connection is gone where nothing says so: a host without power,
// or a network that has been cut, closes no connection.
#pragma once

#include <algorithm>
#include <utility>

#include "core/clock.h"

namespace skein {

// Each end sends something at least every interval(), a sixth of the limit, and takes the other for
// gone when nothing has come for the whole of it. Time in which this process itself was stopped
// does not count. Times are passed in, and never go back.
class Keepalive {
 public:
  Keepalive(Duration limit, Time now)
      : limit_(limit), interval_(limit / 6), heard_at_(now), sent_at_(now), looked_at_(now) {}

  // From now on the other end may be silent for `limit`; zero: for ever. Signs are sent as often as
  // before, or oftener.
  void set_limit(Duration limit) {
    limit_ = limit;
    if (limit > Duration(0)) interval_ = std::min(interval_, limit / 6);
  }

  Duration limit() const { return limit_; }
  Duration interval() const { return interval_; }

  void heard(Time now) { heard_at_ = now; }
  void sent(Time now) { sent_at_ = now; }

  bool due(Time now) const { return now >= sent_at_ + interval_; }  // a sign should be sent

  // Whether the other end is gone. Call it after everything that has arrived was read.
  bool lost(Time now) {
    const Duration gap = now - std::exchange(looked_at_, now);
    if (gap > 2 * interval_) heard_at_ = std::min(now, heard_at_ + gap);
    return limit_ > Duration(0) && now >= heard_at_ + limit_;
  }

  Time next_look() const { return std::max(looked_at_, sent_at_) + interval_; }

 private:
  Duration limit_, interval_;
  Time heard_at_, sent_at_, looked_at_;
};

}  // namespace skein

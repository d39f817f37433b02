// When a wait for a peer ends.
//
// A silence is the peer's only as long as this worker looks for its signs. Time in which this
// worker did not run, because it was stopped or its host was busy, does not count: what the peer
// said meanwhile has yet to be heard.
#pragma once

#include "fabric/fabric.h"

namespace skein {

class WaitEnd {
 public:
  // Workers that wait look at least every 100 ms while they run. What a longer pause between two
  // looks has beyond this is time in which the worker did not run.
  static constexpr Duration kLongestPause = std::chrono::milliseconds(250);

  WaitEnd(const Limit& limit, Time begin) : limit_(limit), begin_(begin), looked_(begin) {}

  // The end as far as is known now, where the peer's last sign of progress was at `sign`. To be
  // asked at every look.
  Time at(Time now, Time sign) {
    if (limit_.never()) return kNever;
    if (!limit_.by_silence()) return limit_.end(begin_, sign);
    if (const Duration pause = now - looked_; pause > kLongestPause) {
      away_ += pause - kLongestPause;
      back_ = now;
    }
    looked_ = now;
    if (sign > back_) away_ = Duration(0);
    return limit_.end(begin_, sign) + away_;
  }

 private:
  const Limit limit_;
  const Time begin_;
  Time looked_, back_{};  // the last look, and the last one that came after a longer pause
  Duration away_{0};      // time in which this worker did not run, since the sign
};

}  // namespace skein

// How long something may be expected to take, learnt from how long it took.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/clock.h"

namespace skein {

// A running mean and the running mean of what differs from it, as TCP keeps of round trips.
class Expectation {
 public:
  // Until the first is seen it is expected to take up to `first`; later at least `least` is
  // allowed; never more than `most`.
  Expectation(Duration first, Duration least, Duration most)
      : limit_(std::min(first, most)), least_(least), most_(most) {}

  void saw(Duration time) {
    const double value = seconds(time);
    if (mean_ < 0) mean_ = value;
    deviation_ += (std::abs(value - mean_) - deviation_) / 4;
    mean_ += (value - mean_) / 8;
    limit_ = std::min(most_, std::max(least_, from_seconds(mean_ + 8 * deviation_)));
  }

  // What takes longer than this is out of the ordinary.
  Duration limit() const { return limit_; }
  Duration mean() const { return mean_ < 0 ? Duration(0) : from_seconds(mean_); }

 private:
  Duration limit_, least_, most_;
  double mean_ = -1, deviation_ = 0;
};

}  // namespace skein

// When a peer that says nothing is taken for lost: after a time that sets itself from how regularly
// its heartbeats have come.
//
// Workers send a heartbeat every kBeatEvery, whatever else they send. How far apart these arrive
// depends on how busy both hosts are and on what waits in the network, so the longest silence that
// means nothing is found from the median of the latest gaps and from how far they are spread about
// it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/clock.h"

namespace skein::tcp {

inline constexpr Duration kBeatEvery = std::chrono::milliseconds(250);

// The shortest silence that loses a peer. A host with more threads than cores may leave one of them
// waiting for seconds, and after a break of a few seconds TCP itself pauses as long once more.
inline constexpr Duration kLeastSilence = std::chrono::seconds(10);

class Pulse {
 public:
  // `first`: the longest silence before the first heartbeat. A worker sends none before it has met
  // with all others, which may be long after it has met with this one.
  Pulse(Time now, Duration least, Duration first);

  // This worker runs: to be called every kBeatEvery. The time in which it did not run itself is not
  // the peer's silence: it has not looked.
  void pass(Time now);

  // Something has come from the peer; a heartbeat has.
  void hear(Time now);
  void beat(Time now);

  // How long nothing has come, and how long that may be.
  Duration silence() const { return own_ - heard_; }
  Duration limit() const { return beats_ > 0 ? limit_ : std::max(least_, first_); }
  bool silent() const { return silence() > limit(); }

 private:
  // The time that has passed while this worker ran.
  Duration own(Time now) const;
  void set_limit();

  static constexpr std::size_t kGaps = 128;
  const Duration least_, first_;
  Time passed_;
  Duration own_{0}, heard_{0}, beaten_{0};
  std::array<Duration, kGaps> gaps_{};
  std::size_t beats_ = 0;
  Duration limit_;
};

}  // namespace skein::tcp

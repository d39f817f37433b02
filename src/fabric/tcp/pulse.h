// When a peer that says nothing is taken for lost: after a time that sets itself from how regularly
// its heartbeats have come.
//
// Workers send a heartbeat every kBeatEvery, whatever else they send. How far apart these arrive
// depends on how busy both hosts are and on what waits in the network, so the longest silence that
// means nothing is found from the median of the latest gaps and from how far they are spread about
// it.
#pragma once

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
  Pulse(Time now, Duration least = kLeastSilence);

  // This worker runs: to be called every kBeatEvery. The time in which it did not run itself is not
  // the peer's silence: it has not looked.
  void pass(Time now);

  // Something has come from the peer; a heartbeat has.
  void hear(Time now);
  void beat(Time now);

  // How long nothing has come, and how long that may be. Nobody is silent before his first
  // heartbeat.
  Duration silence() const { return beats_ > 0 ? own_ - heard_ : Duration(0); }
  Duration limit() const { return limit_; }
  bool silent() const { return silence() > limit_; }

 private:
  // The time that has passed while this worker ran.
  Duration own(Time now) const;
  void set_limit();

  static constexpr std::size_t kGaps = 128;
  const Duration least_;
  Time passed_;
  Duration own_{0}, heard_{0}, beaten_{0};
  std::array<Duration, kGaps> gaps_{};
  std::size_t beats_ = 0;
  Duration limit_;
};

}  // namespace skein::tcp

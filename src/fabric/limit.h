// How long an operation waits for a peer.
#pragma once

#include <algorithm>

#include "core/clock.h"

namespace skein {

// Until a time, or until the peer has been silent for a given duration. Messages that move and
// steps that are made (Fabric::progressed) end a silence, those of the peer itself and of the
// workers that it waits for in turn. So a large model on a slow network takes as long as it takes,
// and a worker that is merely slow is waited for; one that stands still is not.
class Limit {
 public:
  Limit(Deadline until) : until_(until) {}
  static Limit silence(Duration longest) { return Limit(kNever, longest); }

  bool never() const { return until_ == kNever && silence_ == Duration::max(); }

  // When a wait that began at `begin` ends, where the last sign of progress was at `sign`.
  Time end(Time begin, Time sign) const {
    return silence_ == Duration::max() ? until_ : std::max(begin, sign) + silence_;
  }
  // This limit, longer by `more`.
  Limit later(Duration more) const {
    return {until_ == kNever ? kNever : until_ + more,
            silence_ == Duration::max() ? silence_ : silence_ + more};
  }
  bool by_silence() const { return silence_ != Duration::max(); }

 private:
  Limit(Deadline until, Duration longest) : until_(until), silence_(longest) {}
  Deadline until_;
  Duration silence_ = Duration::max();
};

}  // namespace skein

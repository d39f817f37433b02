// Whether the rounds of abs are worth their delay, and when a round without one ends.
//
// With a delay the sum of a round travels while workers compute the next one: nobody waits, and
// every gradient is one round old. Without one, all wait for the sum and apply it at once; a worker
// computes as many micro-batches as fit into the time that the slowest needs for one. All workers
// are given the same figures of each round and so decide the same after the same round.
#pragma once

#include <cstdint>
#include <string>

#include "core/clock.h"

namespace skein {

class Delay {
 public:
  enum class Kind : std::uint8_t { never, always, automatic };

  // What is automatic begins with a delay, which costs no time, until it is known to be idle.
  Delay(Kind kind, int workers) : kind_(kind), workers_(workers), on_(kind != Kind::never) {}

  bool on() const { return on_; }

  // What all workers together have told of a round.
  struct Figures {
    Duration slowest{};  // the longest that one of them took for a micro-batch
    Duration waited{};   // added up: for the sum and for each other; with a delay, would_wait()
    Duration travel{};   // of the sum, from the last worker's post on
  };
  void heard(const Figures& round);

  // With a delay: how long a worker whose micro-batches take `each` would have waited for others,
  // or they for it, without one.
  Duration would_wait(Duration each) const;

  // Without a delay: whether a worker whose first `done` micro-batches took `compute` computes one
  // more. It does where that ends before the slowest has its first, or little later.
  bool one_more(std::int64_t done, Duration compute) const;

 private:
  void turn(bool on);

  Kind kind_;
  int workers_;
  bool on_;
  Duration slowest_{};             // in the last round
  std::int64_t rounds_ = 0;        // since the last turn
  Duration lost_{}, lasted_{};     // of the rounds that are judged next, a worker's on average
  std::int64_t longest_with_ = 0;  // rounds with a delay before it is tried without again
};

}  // namespace skein

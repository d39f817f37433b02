// The rule by which one of the candidates is recommended.
#pragma once

#include <cstddef>
#include <vector>

#include "advise/candidate.h"

namespace skein::advise {

// How many per cent faster than plain allreduce a strategy must be to be worth it. Throughput is
// not accuracy: what changes the mathematics must gain more than what does not.
struct Rule {
  double margin = 6;  // of lasgd, which loses least of those that are not synchronous

  // 0 for allreduce; 1 for dear, which has its bits; 3 more for bfloat16 on the wire. Then lasgd,
  // local (1 more), abs, gossip and acid (3 more), and whatever else there is.
  double percent(const Setup& setup) const;

  // What is compared: samples per second, less that.
  double worth(const Candidate& candidate) const;
};

// Places in the list that was given.
struct Choice {
  std::size_t recommended = 0;
  std::size_t runner_up = 0;    // the best of another strategy
  std::size_t fastest = 0;      // by samples per second alone
  std::size_t synchronous = 0;  // the best that is exactly synchronous: of allreduce and dear
  std::size_t plain = 0;        // allreduce in float32
};

// `candidates` has an allreduce, and at least one that did not fail. Ties go to the first.
Choice choose(const std::vector<Candidate>& candidates, const Rule& rule);

}  // namespace skein::advise

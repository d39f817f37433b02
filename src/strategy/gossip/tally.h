// What a worker knows of how far all have come.
#pragma once

#include <algorithm>
#include <cstdint>

namespace skein {

// Two numbers and a flag, however many workers there are: every message has room for them.
struct Tally {
  std::int64_t own = 0;    // samples that this worker has computed
  std::int64_t step = 0;   // in its last step
  std::int64_t total = 0;  // that all have, as far as is known here: never more than they have
  std::int64_t goal = 0;   // the total at which the run ends; 0: unknown
  bool stop = false;       // somebody wants the run to end

  void add(std::int64_t samples) {
    own += samples;
    step = samples;
  }

  void hear(std::int64_t others_total, bool others_stop) {
    total = std::max(total, others_total);
    stop = stop || others_stop;
  }

  std::int64_t known() const { return std::max(total, own); }
  bool over() const { return stop || (goal > 0 && total >= goal); }
};

}  // namespace skein

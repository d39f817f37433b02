// How many streams to a peer are worth having: found while they are used.
//
// One stream may be slower than the network: many clouds limit each flow, and so does what a single
// connection may have on its way over a long distance. Elsewhere more of them only cost. So another
// one is tried while more waits to be sent than the streams take, and kept if the sum of all is
// clearly higher with it. What was found is tried again now and then, in both directions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/clock.h"

namespace skein::tcp {

class Widening {
 public:
  // Begins with `least` and never has fewer, nor more than `most`.
  Widening(std::size_t least, std::size_t most);

  std::size_t count() const { return count_; }

  // `bytes` have left in a `time` in which more waited all along, on so many streams.
  void pass(std::uint64_t bytes, Duration time, std::size_t streams);

 private:
  enum class Trial : std::uint8_t { none, more, fewer };

  void end_trial(double rate);
  void begin_trial();

  const std::size_t least_, most_;
  std::size_t count_;
  Trial trial_ = Trial::none, next_ = Trial::more;
  double rate_ = 0;           // bytes per second, when nothing is tried
  Duration pause_, left_{0};  // between two trials, until the next: of time that counts
  std::uint64_t bytes_ = 0;   // of the present measurement
  Duration time_{0};
};

}  // namespace skein::tcp

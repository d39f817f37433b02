// A worker's model as events change it at any time, x, and its momentum x̃, which follows in
// continuous time; the arena's parameters are a copy that computation reads.
//
//   dx = η (x̃ − x) dt,  dx̃ = η (x − x̃) dt,  between events; time is in gradients of this worker
#pragma once

#include <functional>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"

namespace skein {

class LiveModel {
 public:
  // Of events that concern one block alone.
  static constexpr std::size_t kBlock = std::size_t{1} << 18;

  // `eta` 0: there is no x̃. `alpha_tilde` is what an averaging does to x̃.
  LiveModel(Arena& arena, double eta, double alpha_tilde);

  // From here on x and x̃ are the arena's parameters.
  void start(Time now);

  // What a gradient takes: time stands still until it is known.
  void set_seconds_per_gradient(double seconds) { seconds_per_gradient_ = seconds; }

  Span x() const { return x_; }
  std::size_t size() const { return x_.count; }

  // Brings x and x̃ to the present.
  void mix(Time now);

  // A gradient: `update(range)` changes x in that range, and x̃ changes by as much.
  void step(Time now, const std::function<void(Range)>& update);

  // An averaging: x += ½ d and x̃ += α̃ d in the block at `offset`, d = theirs − mine.
  void average(Time now, std::size_t offset, Span difference);

  // What mix() would leave in x.
  void read(Span into, Time now) const;

 private:
  struct Factors {
    float keep = 1, take = 0;  // their sum is 1 exactly, so that mixing conserves x + x̃
  };
  Factors factors(Time from, Time now) const;
  Range block(std::size_t index) const;
  void mix_block(std::size_t index, Time now);

  Arena& arena_;
  double eta_;
  float alpha_tilde_;
  Span x_, momentum_;
  double seconds_per_gradient_ = 0;
  std::vector<Time> mixed_;  // until when, of each block
};

}  // namespace skein

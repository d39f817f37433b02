// A worker's model as events change it at any time, x, and its momentum x̃, which follows in
// continuous time; the arena's parameters are a copy that computation reads.
//
//   dx = η (x̃ − x) dt,  dx̃ = η (x − x̃) dt,  between events; time is in gradients of this worker
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/arena.h"
#include "core/clock.h"

namespace skein {

class LiveModel {
 public:
  // Of events that concern one block alone.
  static constexpr std::size_t kBlock = std::size_t{1} << 18;

  // `eta` 0: there is no x̃. `alpha_tilde` is what an averaging does to x̃. `allocate` makes what is
  // needed besides the arena's planes.
  LiveModel(Arena& arena, double eta, double alpha_tilde, Allocate allocate = allocate_on_heap);

  // From here on x and x̃ are the arena's parameters.
  void start(Time now);

  // Time stands still from pause() to go_on(): while the worker evaluates, say. Averagings may come
  // meanwhile. No effect where it does so already, or does not.
  void pause(Time now);
  void go_on(Time now);

  // What a gradient takes: time stands still until it is known.
  void set_seconds_per_gradient(double seconds) { seconds_per_gradient_ = seconds; }

  Span x() const { return x_; }
  std::size_t size() const { return x_.count; }

  // Each of the following brings what it touches to the present first, and makes one pass over
  // memory.

  // A copy of x.
  void copy_to(Span into, Time now);

  // A gradient: `update(range)` changes x in that range, and x̃ changes by as much. The arena's
  // parameters are x then. In pieces of some MB; `whole` in one, which takes memory for another x.
  void step(Time now, bool whole, const std::function<void(Range)>& update);

  // Whether an averaging has changed x since.
  bool averaged() const { return averaged_; }

  // An averaging: x += ½ d and x̃ += α̃ d in the block at `offset`, d = theirs − mine. Overwrites
  // `theirs`.
  void average(Time now, std::size_t offset, Span theirs, Span mine);

  // What copy_to() would give, with everything left as it is.
  void read(Span into, Time now) const;

 private:
  struct Factors {
    float keep = 1, take = 0;  // their sum is 1 exactly, so that mixing conserves x + x̃
    bool operator==(const Factors&) const = default;
  };
  bool flows() const { return eta_ > 0 && seconds_per_gradient_ > 0; }
  Factors factors(Time from, Time now) const;
  Range block(std::size_t index) const;
  std::size_t part_size() const;
  std::size_t block_of(std::size_t offset) const { return offset / kBlock; }
  Factors bring_to(Time now, std::size_t block);
  std::vector<Factors> bring_all_to(Time now);
  void mix(Range range, const Factors& factors);
  void mix_together(Range range, const std::vector<Factors>& f);

  template <typename Work>
  void for_blocks(std::size_t count, const Work& work) const;

  Arena& arena_;
  Allocate allocate_;
  double eta_;
  float alpha_tilde_;
  Span x_, momentum_;
  double seconds_per_gradient_ = 0;
  std::vector<Time> mixed_;  // until when, of each block
  std::optional<Time> paused_;
  bool averaged_ = false;
};

}  // namespace skein

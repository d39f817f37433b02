// Finds the bucket size with which iterations are fastest, by trying few.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/rng.h"

namespace skein {

// Bayesian optimisation of one number on a log scale: a Gaussian process through the logarithms of
// the times tried so far says which size promises the largest improvement. It tries the start, then
// two or three spread points, then what is promised; it ends after `trials`, or, four trials done,
// when no size is expected to save 0.5 % of the best.
//
//   while (!tuner.done()) tuner.observe(median_iteration_seconds(tuner.proposal()));
//   use(tuner.best());
//
// What it proposes is a function of the arguments and the observations, the same on every machine.
class FusionTuner {
 public:
  static constexpr std::size_t kLeastBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  static constexpr std::size_t kStartBytes = std::size_t{25} << 20;
  static constexpr int kMostTrials = 15;

  struct Trial {
    std::size_t bytes = 0;
    double seconds = 0;

    bool operator==(const Trial&) const = default;
  };

  // Throws ConfigError unless kLeastBytes ≤ start_bytes ≤ kMostBytes, 1 ≤ trials ≤ kMostTrials.
  explicit FusionTuner(std::size_t start_bytes = kStartBytes, std::uint64_t seed = 0,
                       int trials = 10);

  // The size to try now, never one that was tried; best() when done.
  std::size_t proposal() const { return proposal_; }

  // Iterations with proposal() take `seconds` (their median: finite and positive). Goes on to the
  // next trial. Requires !done().
  void observe(double seconds);

  // proposal() gives the same buckets as `tried_bytes`, a size in curve(), and need not be tried:
  // then so does every size between the two, and none of them will be proposed. Not a trial. Worth
  // asking for, above all with small models: trials go to the few sizes that differ.
  // Requires !done().
  void observe_same(std::size_t tried_bytes);

  bool done() const { return done_; }

  // The size tried that is fastest by the curve fitted to all trials, so that one lucky measurement
  // does not decide; the start before the first.
  std::size_t best() const { return best_; }

  // All trials in their order.
  const std::vector<Trial>& curve() const { return curve_; }

 private:
  struct Interval {
    std::size_t low, high;
  };

  void advance();
  void close(const Interval& known);
  bool is_near_known(std::size_t bytes) const;  // within an octave
  bool is_worth_trying() const;
  void fit();
  std::size_t most_promising();

  Rng rng_;
  std::size_t trials_;
  std::vector<std::size_t> open_;  // what may be proposed
  std::vector<std::size_t> spread_;
  std::vector<Trial> curve_;
  std::vector<Interval> same_;       // of each trial: sizes known to give its buckets
  std::vector<double> improvement_;  // expected, of each in open_, as a logarithm of time
  std::size_t proposal_;
  std::size_t best_;
  bool done_ = false;
};

}  // namespace skein

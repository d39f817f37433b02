// Which worker holds which samples, and in what order it goes through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/rng.h"

namespace skein::sim {

// Shares that are positive up to underflow and sum to 1 up to rounding, from the symmetric
// Dirichlet distribution: the smaller `alpha`, the more goes to few. Requires finite alpha > 0,
// count >= 1.
std::vector<double> dirichlet(Rng& rng, double alpha, int count);

// The numbers of the samples that each worker holds; labels[i] in [0, classes) is sample i's.
//
// Without `alpha`, or with an infinite one, every worker holds all samples. Else each sample goes
// to exactly one worker: the samples of a class are dealt out in shares drawn from a Dirichlet
// distribution, and a worker that got none is given one of the worker that has most.
// Throws ConfigError when alpha is not above 0, or when there are fewer samples than workers.
std::vector<std::vector<std::uint32_t>> partition(std::span<const int> labels, int classes,
                                                  int workers, std::optional<double> alpha,
                                                  std::uint64_t seed);

// A worker's endless stream of sample numbers: all that it holds, in random order, then again in
// another order, and so on.
class SampleStream {
 public:
  // `held` is not empty.
  SampleStream(std::vector<std::uint32_t> held, Rng rng);

  // The next `count` numbers; they may belong to two passes or more. Valid until the next call.
  std::span<const std::uint32_t> next(std::int64_t count);

 private:
  std::vector<std::uint32_t> held_;
  Rng rng_;
  std::vector<std::uint32_t> order_;  // of this pass: positions in held_
  std::size_t position_ = 0;          // in order_
  std::vector<std::uint32_t> batch_;
};

}  // namespace skein::sim

// The only source of randomness: seeded, splittable, the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace skein {

// xoshiro256** seeded by splitmix64. Satisfies UniformRandomBitGenerator, but prefer the members:
// the distributions of <random> differ between standard libraries.
class Rng {
 public:
  using result_type = std::uint64_t;

  explicit Rng(std::uint64_t seed);

  // An independent generator for a named purpose: the same (seed, stream) gives the same numbers
  // whatever was drawn from this one.
  Rng split(std::uint64_t stream) const;

  // Where it stands; and a generator that stands there.
  std::array<std::uint64_t, 5> words() const;
  static Rng standing_at(const std::array<std::uint64_t, 5>& words);

  result_type operator()();
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }

  double uniform();                          // [0, 1)
  double uniform(double low, double high);   // [low, high)
  double normal();                           // mean 0, variance 1
  double exponential(double rate);           // mean 1 / rate
  std::uint64_t below(std::uint64_t bound);  // 0 … bound − 1, unbiased; requires bound > 0

  // A uniformly random order of 0 … count − 1.
  std::vector<std::uint32_t> permutation(std::uint32_t count);

 private:
  std::uint64_t seed_;
  std::uint64_t state_[4];
};

}  // namespace skein

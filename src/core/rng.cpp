#include "core/rng.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/portable_math.h"

namespace skein {
namespace {

std::uint64_t splitmix(std::uint64_t& x) {
  x += 0x9e3779b97f4a7c15u;
  std::uint64_t z = x;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

Rng::Rng(std::uint64_t seed) : seed_(seed) {
  std::uint64_t x = seed;
  for (auto& word : state_) word = splitmix(x);
}

Rng Rng::split(std::uint64_t stream) const {
  std::uint64_t x = seed_ ^ std::rotl(stream, 32);
  const std::uint64_t mixed = splitmix(x);
  x = mixed + stream;
  return Rng(splitmix(x));
}

std::array<std::uint64_t, 5> Rng::words() const {
  return {seed_, state_[0], state_[1], state_[2], state_[3]};
}

Rng Rng::standing_at(const std::array<std::uint64_t, 5>& words) {
  Rng rng(words[0]);
  std::copy(words.begin() + 1, words.end(), rng.state_);
  return rng;
}

Rng::result_type Rng::operator()() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

double Rng::uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

double Rng::uniform(double low, double high) { return low + (high - low) * uniform(); }

double Rng::normal() {
  // Marsaglia's polar method. The second value that it could give is not kept: it would be state.
  while (true) {
    const double x = uniform(-1, 1), y = uniform(-1, 1);
    const double square = x * x + y * y;
    if (square > 0 && square < 1) return x * std::sqrt(-2 * portable_log(square) / square);
  }
}

double Rng::exponential(double rate) { return -portable_log(1.0 - uniform()) / rate; }

std::uint64_t Rng::below(std::uint64_t bound) {
  SKEIN_CHECK(bound > 0, "below(0)");
  const std::uint64_t limit = max() - max() % bound;
  std::uint64_t draw = (*this)();
  while (draw >= limit) draw = (*this)();
  return draw % bound;
}

std::vector<std::uint32_t> Rng::permutation(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[below(i)]);
  return order;
}

}  // namespace skein

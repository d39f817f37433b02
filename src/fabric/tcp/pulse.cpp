#include "fabric/tcp/pulse.h"

#include <algorithm>
#include <cmath>

namespace skein::tcp {
namespace {

// Beyond so many times their spread no gap is one of them.
constexpr double kSpreads = 8;

}  // namespace

Pulse::Pulse(Time now, Duration least, Duration first)
    : least_(least), first_(first), passed_(now), limit_(least) {}

Duration Pulse::own(Time now) const {
  return own_ + std::clamp<Duration>(now - passed_, Duration(0), 2 * kBeatEvery);
}

void Pulse::pass(Time now) {
  own_ = own(now);
  passed_ = now;
}

void Pulse::hear(Time now) { heard_ = own(now); }

void Pulse::beat(Time now) {
  hear(now);
  if (beats_ > 0) {
    gaps_[(beats_ - 1) % kGaps] = heard_ - beaten_;
    set_limit();
  }
  beaten_ = heard_;
  ++beats_;
}

void Pulse::set_limit() {
  std::array<Duration, kGaps> gaps = gaps_;
  const std::size_t count = std::min(beats_, kGaps);
  const auto end = gaps.begin() + static_cast<std::ptrdiff_t>(count);
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(gaps.begin(), middle, end);
  const Duration median = *middle;
  double squares = 0;
  for (auto gap = gaps.begin(); gap != end; ++gap) {
    const double away = seconds(*gap - median);
    squares += away * away;
  }
  const double spread = std::sqrt(squares / static_cast<double>(count));
  limit_ = std::max(least_, median + from_seconds(kSpreads * spread));
}

}  // namespace skein::tcp

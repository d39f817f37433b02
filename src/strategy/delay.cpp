#include "strategy/delay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "skein/error.h"

namespace skein {
namespace {

constexpr std::int64_t kUnjudged = 3;  // rounds after a turn, in which both ways are mixed
constexpr std::int64_t kJudged = 8;    // rounds that are judged together
constexpr double kWorthWhile = 0.04;   // the part of the time that a delay must gain
constexpr double kIdle = 0.025;        // what it gains where it is not needed, by calculation
constexpr std::int64_t kShortest = 64, kLongest = 4096;  // rounds without another trial

constexpr double kEarly = 0.75;  // of a micro-batch must fit before the slowest has its first

}  // namespace

// Without a delay it is known what waiting costs. With one it is calculated, for workers that are
// never held up by anything else: so less must come of it, and when that was too little to go by it
// is long until the next trial.
void Delay::heard(const Figures& round) {
  slowest_ = round.slowest;
  if (kind_ != Kind::automatic || ++rounds_ <= kUnjudged) return;
  lost_ += round.waited / workers_ + (on_ ? round.travel : Duration{});
  lasted_ += round.slowest + round.travel;
  if ((rounds_ - kUnjudged) % kJudged != 0) return;
  const double part = seconds(lost_) / std::max(1e-9, seconds(lasted_));
  lost_ = lasted_ = Duration{};
  if (!on_ && part > kWorthWhile) {
    turn(true);
    longest_with_ = std::clamp(2 * longest_with_, kShortest, kLongest);
  } else if (on_ && part < kIdle && rounds_ >= longest_with_) {
    turn(false);
  }
}

void Delay::turn(bool on) {
  on_ = on;
  rounds_ = 0;
}

Duration Delay::would_wait(Duration each) const {
  if (each.count() <= 0) return {};
  const auto fit = std::max(1.0, std::ceil(seconds(slowest_) / seconds(each) - kEarly));
  return from_seconds(std::abs(seconds(slowest_) - fit * seconds(each)));
}

// A quarter of a micro-batch more than the slowest is little.
bool Delay::one_more(std::int64_t done, Duration compute) const {
  if (done == 0) return true;
  const double each = seconds(compute) / static_cast<double>(done);
  return seconds(compute) + kEarly * each <= seconds(slowest_);
}

}  // namespace skein

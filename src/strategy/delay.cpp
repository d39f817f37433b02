#include "strategy/delay.h"

#include <fmt/format.h>

#include <algorithm>

#include "skein/error.h"

namespace skein {
namespace {

constexpr std::int64_t kUnjudged = 3;    // rounds after a turn, in which both ways are mixed
constexpr std::int64_t kJudged = 8;      // rounds that are judged together
constexpr double kWorthWhile = 0.04;     // the part of the time that a delay must gain
constexpr std::int64_t kLongest = 4096;  // rounds without another trial

}  // namespace

Delay::Kind Delay::parse(const std::string& text) {
  if (text == "0") return Kind::never;
  if (text == "1") return Kind::always;
  if (text == "auto") return Kind::automatic;
  throw ConfigError(fmt::format("strategy.delay = '{}': expected 0, 1 or auto", text));
}

// Without a delay it is known what waiting costs. With one only a part of that is, the sum's own
// way: where that alone is too long there is nothing to try.
void Delay::heard(const Figures& round) {
  slowest_ = round.slowest;
  if (kind_ != Kind::automatic || ++rounds_ <= kUnjudged) return;
  lost_ += on_ ? round.travel : round.waited / workers_;
  lasted_ += round.slowest + round.travel;
  if ((rounds_ - kUnjudged) % kJudged != 0) return;
  const bool worth_while = seconds(lost_) > kWorthWhile * seconds(lasted_);
  lost_ = lasted_ = Duration{};
  if (!on_ && worth_while) turn(true);
  if (on_ && !worth_while && rounds_ >= longest_with_) turn(false);
}

void Delay::turn(bool on) {
  on_ = on;
  rounds_ = 0;
  if (!on) longest_with_ = std::min(2 * longest_with_, kLongest);
}

// A quarter of a micro-batch more than the slowest is little.
bool Delay::one_more(std::int64_t done, Duration compute) const {
  if (done == 0) return true;
  const double each = seconds(compute) / static_cast<double>(done);
  return seconds(compute) + 0.75 * each <= seconds(slowest_);
}

}  // namespace skein

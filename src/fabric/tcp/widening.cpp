#include "fabric/tcp/widening.h"

#include <algorithm>

namespace skein::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMeasured = 1s;  // long enough for a new stream to come to its rate
constexpr Duration kFirstTrialPause = 16s,
                   kLongestTrialPause = 512s;  // a trial that fails costs a little

// What is slower is slow for another reason than a limit on each stream.
constexpr double kLeastRate = 2e6;

constexpr double kGain = 1.15;  // that makes another stream worthwhile
constexpr double kLoss = 0.95;  // that one fewer may cost

}  // namespace

Widening::Widening(std::size_t least, std::size_t most)
    : least_(least), most_(std::max(least, most)), count_(least), pause_(kFirstTrialPause) {}

void Widening::pass(std::uint64_t bytes, Duration time, std::size_t streams) {
  // Those that are wanted may be yet to come.
  if (streams < count_ || time == Duration(0)) return;
  bytes_ += bytes;
  time_ += time;
  if (time_ < kMeasured) return;
  const double rate = static_cast<double>(bytes_) / seconds(time_);
  left_ -= std::min(left_, time_);
  bytes_ = 0;
  time_ = Duration(0);
  if (trial_ != Trial::none) return end_trial(rate);
  rate_ = rate;
  if (left_ == Duration(0) && rate > kLeastRate) begin_trial();
}

void Widening::begin_trial() {
  trial_ = next_;
  if (trial_ == Trial::more && count_ == most_) trial_ = Trial::fewer;
  if (trial_ == Trial::fewer && count_ == least_)
    trial_ = count_ < most_ ? Trial::more : Trial::none;
  if (trial_ == Trial::more) ++count_;
  if (trial_ == Trial::fewer) --count_;
}

// What has helped is tried at once again; what has not, later and later, and the other way first.
void Widening::end_trial(double rate) {
  const bool more = trial_ == Trial::more;
  trial_ = Trial::none;
  if (rate > rate_ * (more ? kGain : kLoss)) {
    rate_ = rate;
    pause_ = kFirstTrialPause;
    next_ = more ? Trial::more : Trial::fewer;
    return;
  }
  if (more)
    --count_;
  else
    ++count_;
  next_ = more ? Trial::fewer : Trial::more;
  left_ = pause_;
  pause_ = std::min(2 * pause_, kLongestTrialPause);
}

}  // namespace skein::tcp

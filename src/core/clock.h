// Time, always injected: a real clock in a real run, a virtual one on the virtual cluster.
#pragma once

#include <chrono>

namespace skein {

using Duration = std::chrono::nanoseconds;

// The time line of one run. On the real clock its origin is the host's (CLOCK_MONOTONIC), so that
// the processes of one host agree on it.
struct Timeline {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Timeline, Duration>;
  static constexpr bool is_steady = true;
};
using Time = Timeline::time_point;

// When an operation must have ended.
using Deadline = Time;
inline constexpr Time kNever = Time::max();

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline double milliseconds(Duration duration) { return seconds(duration) * 1e3; }
inline Duration from_seconds(double value) {
  return std::chrono::round<Duration>(std::chrono::duration<double>(value));
}

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
  // Whether time passes only when somebody says so, however long a device works meanwhile.
  virtual bool stands_still() const { return false; }
};

class SteadyClock final : public Clock {
 public:
  Time now() const override { return Time(std::chrono::steady_clock::now().time_since_epoch()); }
};

// Stands still until it is told otherwise.
class ManualClock final : public Clock {
 public:
  Time now() const override { return now_; }
  bool stands_still() const override { return true; }
  void advance_to(Time time) { now_ = time; }

 private:
  Time now_{};
};

}  // namespace skein

#include "emulate/pacer.h"

#include <sys/prctl.h>

#include <algorithm>
#include <ctime>

namespace skein {

Pacer::Pacer(const Clock& clock, const Arena& arena, Duration step, std::int64_t batch,
             std::optional<Pace> pace)
    : clock_(clock), step_(step), batch_(batch), pace_(pace), started_(clock.now()) {
  lay_out(arena);
  // Of the calling thread: sleeps end when they should, not up to 50 µs later.
  if (active()) ::prctl(PR_SET_TIMERSLACK, 1UL);
}

void Pacer::lay_out(const Arena& arena) {
  weight_.clear();
  double total = 0;
  for (const Slot& slot : arena.slots()) total += static_cast<double>(slot.range.count);
  for (const Slot& slot : arena.slots())
    weight_.push_back(static_cast<double>(slot.range.count) / total);
}

void Pacer::begin(std::int64_t samples, Duration updated) {
  if (!active()) return;
  begin_ = clock_.now();
  slept_ = Duration(0);
  samples_ = samples;
  done_ = 0;
  if (pace_) factor_ = pace_->next_factor(Time() + (begin_ - started_));
  const double per_sample =
      step_ > Duration(0) ? seconds(step_) / static_cast<double>(batch_) : real_per_sample_;
  target_ = from_seconds(per_sample * factor_ * static_cast<double>(samples));
  if (step_ > Duration(0)) begin_ -= std::min(updated, target_ / 3);
}

void Pacer::reading(int slot) {
  if (!active()) return;
  double before = 0;
  for (int i = 0; i < slot; ++i) before += weight_[static_cast<std::size_t>(i)];
  sleep_until(begin_ + from_seconds(seconds(target_) * before / 3));
}

void Pacer::waited(Duration time) { begin_ += time; }

void Pacer::forward_done() {
  if (active()) sleep_until(begin_ + target_ / 3);
}

void Pacer::gradient_done(int slot) {
  if (!active()) return;
  done_ += weight_[static_cast<std::size_t>(slot)];
  sleep_until(begin_ + from_seconds(seconds(target_) * (1 + 2 * done_) / 3));
}

void Pacer::backward_done() {
  if (!active()) return;
  const double real = seconds(clock_.now() - begin_ - slept_) / static_cast<double>(samples_);
  real_per_sample_ =
      real_per_sample_ > 0 ? real_per_sample_ + 0.3 * (real - real_per_sample_) : real;
  if (step_ == Duration(0) && target_ == Duration(0))  // the first: nothing was known when it began
    target_ = from_seconds(real * factor_ * static_cast<double>(samples_));
  sleep_until(begin_ + target_);
}

void Pacer::sleep_until(Time time) {
  const Time now = clock_.now();
  if (time <= now) return;
  const auto ns = time.time_since_epoch().count();
  const timespec absolute{ns / 1'000'000'000, ns % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &absolute, nullptr) != 0) {
  }
  slept_ += clock_.now() - now;
}

}  // namespace skein

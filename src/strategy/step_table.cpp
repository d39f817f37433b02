#include "strategy/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {

StepTable::StepTable(Worker& worker, Channel channel)
    : worker_(worker),
      channel_(channel),
      memory_(worker.fabric().allocate(static_cast<std::size_t>(worker.size()) * kColumns)) {}

void StepTable::start(std::int64_t samples) {
  const Span table = memory_->span();
  fill(table, 0);
  cell(worker_.rank(), kExpected) = static_cast<float>(samples);
  cell(worker_.rank(), kComputed) = static_cast<float>(computed_);
  cell(worker_.rank(), kSecondsPerSample) = static_cast<float>(worker_.meters.seconds_per_sample);
  cell(worker_.rank(), kStop) = worker_.wants_to_stop ? 1 : 0;
  if (worker_.rank() == 0) cell(0, kTold) = static_cast<float>(std::exchange(told_, 0));
  // The first step fixes the reference; until it is over the ranks have not heard of each other, so
  // there a sample weighs 1. Alone, every batch weighs 1: plain SGD, bit for bit.
  std::int64_t& reference = worker_.progress.reference;
  if (worker_.size() == 1) reference = samples;
  unit_ = reference > 0 ? static_cast<float>(reference) : 1;
  own_weight_ = static_cast<float>(samples) / unit_;
  exchange_ = ScopedJob(
      worker_.loop().spawn(worker_.fabric().all_reduce_small(channel_, table, worker_.deadline())));
}

Task<> StepTable::finish() {
  co_await exchange_->join();
  exchange_ = ScopedJob();
  check_last_step();
  double weighed = 0, total = 0;
  last_expected_.clear();
  speeds_.clear();
  for (int r = 0; r < worker_.size(); ++r) {
    // Alone, what was computed is known at once.
    last_expected_.push_back(worker_.size() == 1 ? static_cast<double>(computed_)
                                                 : cell(r, kExpected));
    total += last_expected_.back();
    weighed += static_cast<double>(cell(r, kExpected));
    if (const double time = cell(r, kSecondsPerSample); time > 0) speeds_.push_back(1 / time);
    if (cell(r, kStop) > 0) worker_.all_stop = true;
  }
  if (std::ssize(speeds_) != worker_.size()) speeds_.clear();
  heard_ = std::llround(cell(0, kTold));
  total_weight_ = weighed / static_cast<double>(unit_);
  Progress& progress = worker_.progress;
  progress.samples += std::llround(total);
  if (progress.reference == 0)
    progress.reference = std::max<std::int64_t>(1, std::llround(cell(0, kExpected)));
}

void StepTable::check_last_step() {
  double ratio = -1;
  for (int r = 0; r < static_cast<int>(last_expected_.size()); ++r) {
    const double expected = last_expected_[static_cast<std::size_t>(r)];
    const double computed = cell(r, kComputed);
    if (expected == computed && expected == 0) continue;
    const double mine = expected > 0 ? computed / expected : INFINITY;
    if (ratio >= 0 && mine != ratio)
      throw ConfigError(fmt::format(
          "step {}: rank {} was expected to compute {} samples and computed {}: the average of the "
          "workers was weighted wrongly. Say expect(samples) before backward() when batch sizes "
          "change",
          worker_.progress.steps, r, expected, computed));
    ratio = mine;
    worker_.progress.samples += std::llround(computed - expected);
  }
}

}  // namespace skein

#include "strategy/step_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/kernels.h"
#include "skein/error.h"

namespace skein {
namespace {

constexpr int kMostNamed = 8;  // ranks in a message

// Which ranks did not compute what they announced.
std::string differences(const std::vector<std::int64_t>& announced,
                        const std::vector<std::int64_t>& computed) {
  std::string text;
  int named = 0, more = 0;
  for (std::size_t r = 0; r < announced.size(); ++r) {
    if (announced[r] == computed[r]) continue;
    if (named == kMostNamed) {
      ++more;
      continue;
    }
    text += fmt::format("{}rank {} was expected to compute {} samples and computed {}",
                        named++ == 0 ? "" : "; ", r, announced[r], computed[r]);
  }
  if (more > 0) text += fmt::format("; and {} more ranks", more);
  return text;
}

}  // namespace

StepTable::StepTable(Worker& worker, Channel channel)
    : worker_(worker),
      channel_(channel),
      memory_(worker.fabric().allocate(static_cast<std::size_t>(worker.size()) * kColumns)) {}

void StepTable::start(std::int64_t samples, bool waits) {
  const Span table = memory_->span();
  fill(table, 0);
  put_count(count(worker_.rank(), kExpected), samples);
  put_count(count(worker_.rank(), kComputed), std::exchange(computed_, 0));
  cell(worker_.rank(), kSecondsPerSample) = static_cast<float>(worker_.meters.seconds_per_sample);
  const int flags = (worker_.wants_to_stop ? kStop : 0) | (waits ? kWaits : 0);
  cell(worker_.rank(), kFlags) = static_cast<float>(flags);
  cell(worker_.rank(), kDecision) = static_cast<float>(worker_.decision);
  // What is told is for a step.
  if (worker_.rank() == 0 && !waits) cell(0, kTold) = static_cast<float>(std::exchange(told_, 0));
  // The first step fixes the reference; until it is over the ranks have not heard of each other, so
  // there a sample weighs 1. Alone, every batch weighs 1: plain SGD, bit for bit.
  std::int64_t& reference = worker_.progress.reference;
  if (worker_.size() == 1) reference = samples;
  unit_ = reference > 0 ? static_cast<float>(reference) : 1;
  own_weight_ = static_cast<float>(samples) / unit_;
  exchange_ = ScopedJob(
      worker_.loop().spawn(worker_.fabric().all_reduce_small(channel_, table, worker_.limit())));
}

void StepTable::record(std::int64_t samples) {
  computed_ = samples;
  if (worker_.size() == 1 && own_weight_ == 0 && samples > 0) refuse({0}, {samples});
}

Task<> StepTable::finish() {
  co_await exchange_->join();
  exchange_ = ScopedJob();
  check_last_step();
  check_decisions();
  read_rows();
}

void StepTable::check_decisions() {
  for (int r = 1; r < worker_.size(); ++r)
    if (cell(r, kDecision) != cell(0, kDecision))
      throw ConfigError(fmt::format(
          "step {}: before_update() did not decide the same on ranks 0 and {}, so their models are "
          "no longer equal. Decide by what it is shown, or by what all workers know",
          worker_.progress.steps, r));
}

void StepTable::read_rows() {
  std::int64_t announced = 0, total = 0, first = 0;
  waiting_ = 0;
  last_expected_.clear();
  speeds_.clear();
  for (int r = 0; r < worker_.size(); ++r) {
    const std::int64_t expected = get_count(count(r, kExpected));
    // Alone, what was computed is known at once.
    last_expected_.push_back(worker_.size() == 1 ? computed_ : expected);
    total += last_expected_.back();
    announced += expected;
    if (first == 0) first = expected;
    if (const double time = cell(r, kSecondsPerSample); time > 0) speeds_.push_back(1 / time);
    const int flags = static_cast<int>(cell(r, kFlags));
    if ((flags & kStop) != 0) worker_.all_stop = true;
    waiting_ += (flags & kWaits) != 0 ? 1 : 0;
  }
  if (std::ssize(speeds_) != worker_.size()) speeds_.clear();
  heard_ = std::llround(cell(0, kTold));
  total_weight_ = static_cast<double>(announced) / static_cast<double>(unit_);
  Progress& progress = worker_.progress;
  progress.samples += total;
  if (progress.reference == 0) progress.reference = first;
}

void StepTable::refuse(const std::vector<std::int64_t>& announced,
                       const std::vector<std::int64_t>& computed) const {
  throw ConfigError(fmt::format(
      "step {}: {}: the average of the workers was weighted wrongly. Say expect(samples) before "
      "backward() when batch sizes change",
      worker_.progress.steps, differences(announced, computed)));
}

// Shares may all be larger or smaller than announced by the same factor: then the average was right
// and only the count has to follow.
void StepTable::check_last_step() {
  bool right = true;
  std::int64_t all_expected = 0, all_computed = 0;
  std::vector<std::int64_t> computed;
  for (int r = 0; r < std::ssize(last_expected_); ++r) {
    computed.push_back(get_count(count(r, kComputed)));
    all_expected += last_expected_[static_cast<std::size_t>(r)];
    all_computed += computed.back();
  }
  for (std::size_t r = 0; r < computed.size(); ++r)
    right = right && static_cast<__int128>(computed[r]) * all_expected ==
                         static_cast<__int128>(last_expected_[r]) * all_computed;
  if (!right || (all_expected == 0 && all_computed > 0)) refuse(last_expected_, computed);
  worker_.progress.samples += all_computed - all_expected;
}

}  // namespace skein

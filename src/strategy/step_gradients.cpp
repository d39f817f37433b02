#include "strategy/step_gradients.h"

#include <fmt/format.h>

#include <utility>

#include "skein/error.h"

namespace skein {

StepGradients::StepGradients(Program& program)
    : program_(program), overlap_(program.sees_touches() ? Overlap::untried : Overlap::on) {}

std::vector<int> StepGradients::begin(const Arena& arena, const BucketPlan& plan, int passes,
                                      bool sends, bool weight_known) {
  const std::lock_guard lock(mutex_);
  arena_ = &arena;
  plan_ = &plan;
  passes_ = passes;
  watching_ = sends && overlap_ != Overlap::off && program_.sees_touches();
  leaving_ = sends && overlap_ == Overlap::on && weight_known;
  some_complete_ = false;
  left_ = 0;
  arrivals_.assign(arena.slots().size(), 0);
  missing_.assign(index(plan.count()), 0);
  expected_.resize(arrivals_.size());
  for (int slot = 0; slot < slots(); ++slot) {
    const bool expected = program_.expects_gradient(slot);
    expected_[index(slot)] = expected;
    if (expected) missing_[index(plan.bucket_of(slot))] += passes;
  }
  std::vector<int> complete;
  if (!leaving_) return complete;
  for (int bucket = 0; bucket < plan.count(); ++bucket)
    if (missing_[index(bucket)] == 0) complete.push_back(bucket);
  look_for_departures();
  return complete;
}

// Buckets leave in order.
void StepGradients::look_for_departures() {
  while (left_ < plan_->count() && missing_[index(left_)] == 0) ++left_;
}

int StepGradients::add(int slot) {
  const std::lock_guard lock(mutex_);
  const int passes = ++arrivals_[index(slot)];
  if (passes > passes_)
    throw ConfigError(fmt::format(
        "backward pass {} of a step that has {}: the gradient of '{}' may be on its way already. "
        "Say accumulate({}) before, or step() after each; a loss that only goes through this "
        "module, "
        "as a GAN's generator's does, gives backward() the parameters it trains as `inputs`",
        passes, passes_, name(slot), passes));
  if (watching_ && passes == passes_ && !std::exchange(some_complete_, true))
    program_.watch_gradients(true);
  const int bucket = plan_->bucket_of(slot);
  if (!expected_[index(slot)]) {
    if (has_left(slot))
      throw ConfigError(fmt::format(
          "the gradient of '{}', which was frozen between forward and backward, came when its "
          "place was on its way already; expected it to be frozen between steps",
          name(slot)));
    return -1;
  }
  if (--missing_[index(bucket)] > 0 || !leaving_) return -1;
  look_for_departures();
  return bucket;
}

void StepGradients::on_touch(int slot) {
  const std::lock_guard lock(mutex_);
  if (watching_ && is_complete(slot)) note(slot);
}

void StepGradients::note(int slot) {
  std::optional<int>& touched = has_left(slot) ? touched_too_late_ : touched_;
  if (!touched) touched = slot;
  leaving_ = false;
  // Nothing that comes now could matter more.
  if (left_ == 0 || touched_too_late_) program_.watch_gradients(false);
}

std::optional<StepGradients::Touch> StepGradients::end() {
  if (watching_) program_.watch_gradients(false);
  const std::lock_guard lock(mutex_);
  if (!std::exchange(watching_, false)) return {};
  for (int slot = 0; slot < slots(); ++slot)
    if (is_complete(slot) && !program_.gradient_is_in_place(slot)) note(slot);
  const auto late = std::exchange(touched_too_late_, std::nullopt);
  const auto touched = std::exchange(touched_, std::nullopt);
  if (late || touched)
    overlap_ = Overlap::off;
  else if (some_complete_)
    overlap_ = Overlap::on;
  if (late) return Touch{*late, true};
  if (touched) return Touch{*touched, false};
  return {};
}

}  // namespace skein

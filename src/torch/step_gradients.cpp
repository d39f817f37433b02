#include "torch/step_gradients.h"

#include <fmt/format.h>

#include "skein/error.h"

namespace skein {

StepGradients::StepGradients(const Binding& binding) : binding_(binding) { arena_changed(); }

void StepGradients::arena_changed() {
  hook_ = std::make_unique<ReadHook>(
      binding_, [this](int slot) { on_touch(slot); }, ReadHook::Watch::gradients);
  arrivals_.assign(static_cast<std::size_t>(binding_.slots()), 0);
}

std::vector<int> StepGradients::begin(const BucketPlan& plan, int passes, bool sends,
                                      bool weight_known) {
  const std::lock_guard lock(mutex_);
  plan_ = &plan;
  passes_ = passes;
  watching_ = sends && overlap_ != Overlap::off;
  leaving_ = sends && overlap_ == Overlap::on && weight_known;
  some_complete_ = false;
  left_ = 0;
  missing_.assign(static_cast<std::size_t>(plan.count()), 0);
  expected_.resize(arrivals_.size());
  for (int slot = 0; slot < binding_.slots(); ++slot) {
    const bool expected = binding_.parameter(slot).requires_grad();
    expected_[static_cast<std::size_t>(slot)] = expected;
    if (expected) missing_[static_cast<std::size_t>(plan.bucket_of(slot))] += passes;
  }
  arrivals_.assign(arrivals_.size(), 0);
  std::vector<int> complete;
  if (!leaving_) return complete;
  for (int bucket = 0; bucket < plan.count(); ++bucket)
    if (missing_[static_cast<std::size_t>(bucket)] == 0) complete.push_back(bucket);
  look_for_departures();
  return complete;
}

// Buckets leave in order.
void StepGradients::look_for_departures() {
  while (left_ < plan_->count() && missing_[static_cast<std::size_t>(left_)] == 0) ++left_;
}

int StepGradients::add(int slot) {
  const std::lock_guard lock(mutex_);
  const int passes = ++arrivals_[static_cast<std::size_t>(slot)];
  if (passes > passes_)
    throw ConfigError(fmt::format(
        "backward pass {} of a step that has {}: the gradient of '{}' may be on its way already. "
        "Say accumulate({}) before, or step() after each; a loss that only goes through this "
        "module, "
        "as a GAN's generator's does, gives backward() the parameters it trains as `inputs`",
        passes, passes_, binding_.names_of_slot(slot).front(), passes));
  if (watching_ && passes == passes_ && !std::exchange(some_complete_, true)) hook_->activate();
  const int bucket = plan_->bucket_of(slot);
  if (!expected_[static_cast<std::size_t>(slot)]) {
    if (has_left(slot))
      throw ConfigError(fmt::format(
          "the gradient of '{}', which was frozen between forward and backward, came when its "
          "place was on its way already; expected it to be frozen between steps",
          binding_.names_of_slot(slot).front()));
    return -1;
  }
  if (--missing_[static_cast<std::size_t>(bucket)] > 0 || !leaving_) return -1;
  look_for_departures();
  return bucket;
}

void StepGradients::on_touch(int slot) {
  const std::lock_guard lock(mutex_);
  if (is_complete(slot)) note(slot);
}

void StepGradients::note(int slot) {
  std::optional<int>& touched = has_left(slot) ? touched_too_late_ : touched_;
  if (!touched) touched = slot;
  leaving_ = false;
  // Nothing that comes now could matter more.
  if (left_ == 0 || touched_too_late_) hook_->deactivate();
}

std::optional<StepGradients::Touch> StepGradients::end() {
  hook_->deactivate();
  const std::lock_guard lock(mutex_);
  if (!std::exchange(watching_, false)) return {};
  for (int slot = 0; slot < binding_.slots(); ++slot)
    if (is_complete(slot) && !binding_.gradient_is_in_place(slot)) note(slot);
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

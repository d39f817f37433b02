#include "strategy/worker.h"

#include <bit>
#include <cmath>

#include "kernels/kernels.h"
#include "optimize/clip.h"

namespace skein {

namespace {

// Weight of the newest step in the smoothed compute time: follows a change within a few steps.
constexpr double kNewest = 0.3;

// Numbers count as the floats that an update makes of them.
std::int64_t mixed(std::int64_t digest, std::uint64_t value) {
  const std::uint64_t word = (std::rotl(static_cast<std::uint64_t>(digest), 23) ^ value);
  return static_cast<std::int64_t>(word * 0x9E3779B97F4A7C15ULL);
}
std::int64_t mixed(std::int64_t digest, double value) {
  return mixed(digest, std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(value))});
}

}  // namespace

void Meters::computed(Duration time, std::int64_t samples) {
  compute = time;
  if (samples <= 0) return;
  const double newest = seconds(time) / static_cast<double>(samples);
  double& smooth = seconds_per_sample;
  smooth = smooth > 0 ? smooth + kNewest * (newest - smooth) : newest;
}

UpdateContext Worker::next_update() {
  UpdateContext next = previewed_update();
  decision = mixed(mixed(0, next.learning_rate), groups_ ? groups_->digest() : 0);
  return next;
}

Task<> Worker::prepare(UpdateContext& context, const SquaredNorm& squared_norm, bool of_one_step) {
  double norm = co_await squared_norm();
  if (before_update) {
    const auto scale = static_cast<double>(context.gradient_scale);
    AveragedGradients gradients(std::sqrt(norm * scale * scale), of_one_step);
    shown = {&context, &squared_norm};
    co_await before_update(gradients);
    shown = {};
    gradients.set_source(nullptr);
    decided_ = gradients;
    context.gradient_scale *= static_cast<float>(gradients.factor());
    context.skip = gradients.skipped();
    // A skipped step is one, whatever its factor.
    decision = mixed(mixed(decision, gradients.skipped() ? 0 : gradients.factor()),
                     std::uint64_t{gradients.skipped()});
    if (gradients.changed() && clips() && !context.skip) norm = co_await squared_norm();
  }
  if (clips()) context.gradient_scale = clipped(context.gradient_scale, norm, clip_);
}

Task<> Worker::clip(UpdateContext& context, const SquaredNorm& squared_norm) {
  context.gradient_scale = clipped(context.gradient_scale, co_await squared_norm(), clip_);
}

bool Worker::prepare_preview(UpdateContext& context, double squared_norm) const {
  if (!std::isfinite(squared_norm)) return false;
  if (before_update) {
    if (!decided_ || decided_->skipped() || decided_->changed()) return false;
    const auto scale = static_cast<double>(context.gradient_scale);
    context.gradient_scale *=
        static_cast<float>(decided_->factor_for(std::sqrt(squared_norm * scale * scale)));
  }
  if (clips()) context.gradient_scale = clipped(context.gradient_scale, squared_norm, clip_);
  return true;
}

void Worker::model_updated() {
  if (!after_update) return;
  const Time begin = loop().now();
  after_update();
  updated("after update", begin);
}

Task<> Worker::update(Range range, const UpdateContext& context) {
  const std::function<void()> apply = [&] {
    if (context.skip)
      fill(arena_->gradients().at(range), 0);
    else
      optimizer_->update(range, arena_->parameters(), arena_->gradients(), context);
  };
  co_await update(range.count, apply);
}

Task<> Worker::update(std::size_t count, const std::function<void()>& apply) {
  const Time begin = loop().now();
  apply();
  if (modelled_update_seconds > 0)
    co_await loop().sleep_for(from_seconds(modelled_update_seconds * static_cast<double>(count)));
  updated("update", begin);
}

void Worker::updated(std::string_view what, Time begin) {
  const Time end = loop().now();
  meters.update += end - begin;
  trace_.span(Lane::update, what, begin, end);
}

}  // namespace skein

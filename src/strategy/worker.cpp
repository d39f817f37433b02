#include "strategy/worker.h"

#include <bit>
#include <cmath>

#include "kernels/kernels.h"
#include "optimize/clip.h"

namespace skein {

namespace {

// Weight of the newest step in the smoothed compute time: follows a change within a few steps.
constexpr double kNewest = 0.3;

// From 1 to 4095. A skipped step is one, whatever its factor.
int digest(float factor, bool skipped) {
  const std::uint32_t word = skipped ? 1 : std::bit_cast<std::uint32_t>(factor) + 2;
  return static_cast<int>((word * 2654435761U >> 8) % 4095) + 1;
}

}  // namespace

void Meters::computed(Duration time, std::int64_t samples) {
  compute = time;
  if (samples <= 0) return;
  const double newest = seconds(time) / static_cast<double>(samples);
  double& smooth = seconds_per_sample;
  smooth = smooth > 0 ? smooth + kNewest * (newest - smooth) : newest;
}

Task<> Worker::prepare(UpdateContext& context, double squared_norm) {
  if (before_update) {
    const auto scale = static_cast<double>(context.gradient_scale);
    AveragedGradients gradients(std::sqrt(squared_norm * scale * scale));
    co_await before_update(gradients);
    context.gradient_scale *= static_cast<float>(gradients.factor());
    context.skip = gradients.skipped();
    decision = digest(static_cast<float>(gradients.factor()), gradients.skipped());
  }
  if (clip_ > 0) context.gradient_scale = clipped(context.gradient_scale, squared_norm, clip_);
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
  const Time end = loop().now();
  meters.update += end - begin;
  trace_.span(Lane::update, "update", begin, end);
}

}  // namespace skein

// Gradient clipping by global norm.
#pragma once

#include <cmath>

#include "core/check.h"

namespace skein {

// What to multiply gradients of that squared norm by so that their norm is at most `max_norm`, as
// torch.nn.utils.clip_grad_norm_ does: min(1, max_norm / (norm + 1e-6)). NaN stays NaN, so that a
// gradient which is not a number is seen. Requires max_norm > 0.
inline float clip_scale(double squared_norm, double max_norm) {
  SKEIN_CHECK(max_norm > 0, "clip to norm {}", max_norm);
  const double scale = max_norm / (std::sqrt(squared_norm) + 1e-6);
  return scale > 1 ? 1.0F : static_cast<float>(scale);
}

// `gradient_scale` as it must be so that gradients of that squared norm, once scaled, are clipped.
inline float clipped(float gradient_scale, double squared_norm, double max_norm) {
  const auto scale = static_cast<double>(gradient_scale);
  return gradient_scale * clip_scale(squared_norm * scale * scale, max_norm);
}

}  // namespace skein

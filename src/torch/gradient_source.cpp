#include "torch/gradient_source.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>

#include "skein/gradient_piece.h"

namespace skein {

// From here on the plane holds the averaged gradient itself: what an update would have multiplied
// it by is in it, with the same rounding.
void GradientSource::visit(double factor, const std::function<void(const GradientPiece&)>& change) {
  UpdateContext& context = *worker_.shown.context;
  const float scale = context.gradient_scale * static_cast<float>(factor);
  context.gradient_scale = 1;
  std::vector<Range> own;
  Mark there;
  courier_.with_loop([&] {
    own = worker_.optimizer().owned();
    there = worker_.record();
  });
  stream_.wait(there);
  {
    const torch::NoGradGuard no_grad;
    // The parameters may be on their way: nobody is to wait for them here.
    const at::DisableRecordFunctionGuard unobserved;
    for (const Range& range : own) visit(range, scale, change);
  }
  if (const Mark changed = stream_.record())
    courier_.with_loop([&] { worker_.loop().queue()->wait(changed); });
}

// The slots that `range` has a part of.
void GradientSource::visit(Range range, float scale,
                           const std::function<void(const GradientPiece&)>& change) {
  const auto& slots = binding_.arena().slots();
  auto slot = std::partition_point(slots.begin(), slots.end(), [&](const Slot& each) {
    return each.range.end() <= range.offset;
  });
  for (; slot != slots.end() && slot->range.offset < range.end(); ++slot) {
    const std::size_t begin = std::max(slot->range.offset, range.offset);
    const std::size_t end = std::min(slot->range.end(), range.end());
    if (begin >= end) continue;
    const torch::Tensor values = tensor_over(binding_.arena().gradients().at({begin, end - begin}));
    if (scale != 1) values.mul_(scale);
    change({slot->name, binding_.parameter(static_cast<int>(slot - slots.begin())),
            static_cast<std::int64_t>(begin - slot->range.offset), values});
  }
}

Task<> GradientSource::ask_norm(double& squared) const {
  squared = co_await (*worker_.shown.squared_norm)();
}

double GradientSource::norm() {
  double squared = 0;
  courier_.wait(ask_norm(squared));
  return std::sqrt(squared);
}

}  // namespace skein

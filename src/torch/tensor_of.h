// Memory of an arena as torch sees it.
#pragma once

#include <torch/torch.h>

#include "core/span.h"

namespace skein {

inline torch::Device torch_device(Device device) {
  if (device.kind != Device::gpu) return torch::kCPU;
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

// A flat tensor that aliases the floats of a span, which outlives it.
inline torch::Tensor tensor_of(Span span) {
  SKEIN_CHECK(span.type == Type::f32, "values that are no floats");
  return torch::from_blob(span.data, {static_cast<std::int64_t>(span.count)},
                          torch::TensorOptions(torch::kFloat32).device(torch_device(span.device)));
}

}  // namespace skein

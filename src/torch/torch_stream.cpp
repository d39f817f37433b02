#include "torch/torch_stream.h"

#include <fmt/format.h>

#include "skein/error.h"

namespace skein {

Device device_of(const torch::Device& device) {
  if (device.is_cpu()) return Device::cpu;
  if (!device.is_cuda())
    throw ConfigError(fmt::format("device {}: expected the CPU or a CUDA device", device.str()));
  if (const std::string reason = why_no_torch_cuda(); !reason.empty())
    throw ConfigError(fmt::format("device {} cannot be used: {}", device.str(), reason));
  return {Device::gpu, static_cast<std::uint8_t>(device.has_index() ? device.index() : 0)};
}

torch::Device torch_device_of(Device device) {
  SKEIN_CHECK(device != Device::absent, "torch has no memory that is not there");
  return device.kind == Device::gpu
             ? torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(device.index))
             : torch::Device(torch::kCPU);
}

torch::Tensor tensor_over(Span span) {
  SKEIN_CHECK(span.type == Type::f32, "a tensor over values that are not floats");
  return torch::from_blob(
      span.data, {static_cast<std::int64_t>(span.count)},
      torch::TensorOptions(torch::kFloat32).device(torch_device_of(span.device)));
}

torch::Tensor tensor_that_holds(std::shared_ptr<const void> owner, Span span) {
  SKEIN_CHECK(span.type == Type::f32, "a tensor over values that are not floats");
  return torch::from_blob(
      span.data, {static_cast<std::int64_t>(span.count)},
      [owner = std::move(owner), stream = TorchStream(span.device)](void*) { stream.finish(); },
      torch::TensorOptions(torch::kFloat32).device(torch_device_of(span.device)));
}

}  // namespace skein

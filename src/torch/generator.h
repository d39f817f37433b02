// Torch's random generators.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

namespace skein {

// The one that belongs to a device.
inline at::Generator generator_of(torch::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

}  // namespace skein

// Torch's random generators.
#pragma once

#include <torch/torch.h>

namespace skein {

// The one that belongs to a device.
at::Generator generator_of(torch::Device device);

}  // namespace skein

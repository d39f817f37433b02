#include "torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>

namespace skein {

at::Generator generator_of(torch::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator()
                         : at::globalContext().defaultGenerator(device);
}

}  // namespace skein

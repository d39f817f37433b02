// A tensor and the name it goes by in a module or a file.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace skein {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

}  // namespace skein

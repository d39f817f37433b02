// A part of one parameter's averaged gradient.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

namespace skein {

// What AveragedGradients::each() shows. Valid while it shows it.
struct GradientPiece {
  const std::string& name;         // the parameter's, the first if it has several
  const torch::Tensor& parameter;  // the whole of it; under `dear` its values may be on their way
  std::int64_t offset;             // of the piece in parameter.flatten()
  torch::Tensor values;            // the gradient's, flat; what is written here counts
};

}  // namespace skein

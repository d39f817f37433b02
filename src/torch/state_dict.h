// A module's state in a file that Python's torch.load() reads: a dict of tensors by name.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <vector>

#include "torch/named_tensor.h"

namespace skein {

// Whether a file of this name is one: it ends in .pt or .pth.
bool is_state_dict(const std::filesystem::path& path);

// Writes `tensors`, the module's by their first names, under all names that the module has for
// them: tied weights have several, as in Python. The file appears whole or not at all; Error names
// the path and the reason.
void write_state_dict(const std::filesystem::path& path, const torch::nn::Module& module,
                      const std::vector<NamedTensor>& tensors);

}  // namespace skein

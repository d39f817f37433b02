#include "train/version.h"

#include <torch/version.h>

namespace skein {

std::string torch_version() { return TORCH_VERSION; }

}  // namespace skein

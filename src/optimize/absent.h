// The optimizer of a model that has only a size.
#pragma once

#include <memory>

#include "optimize/optimizer.h"

namespace skein {

// Updates nothing and has no state, but keeps account of what is owned as others do. For planes of
// Device::absent.
std::unique_ptr<Optimizer> make_absent(std::size_t size);

}  // namespace skein

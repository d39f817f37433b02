// The built-in optimizer that a job asks for. No torch here.
#pragma once

#include <memory>

#include "optimize/optimizer.h"
#include "train/options.h"

namespace skein {

// For a plane of `size` elements, all under one rule: which tensors have one dimension is not known
// here. Its state is where `allocate` puts it.
std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& job, std::size_t size,
                                          Allocate allocate = allocate_on_heap);

}  // namespace skein

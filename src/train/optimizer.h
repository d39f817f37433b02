// The built-in optimizer that a job asks for. No torch here.
#pragma once

#include <memory>

#include "optimize/optimizer.h"
#include "skein/parameter_group.h"
#include "train/options.h"

namespace skein {

// For a plane of `size` elements, all under one rule: which tensors have one dimension is not known
// here. Its state is where `allocate` puts it.
std::unique_ptr<Optimizer> make_optimizer(const TrainOptions& job, std::size_t size,
                                          Allocate allocate = allocate_on_heap);

// Reads PATTERN:KEY=VALUE,…; PATTERN:… with at least one of the keys lr, factor, weight-decay,
// momentum and frozen, as in "head.*:factor=10,weight-decay=0; words.*:frozen=true". ConfigError
// for anything else.
std::vector<ParameterGroup> parse_parameter_groups(const std::string& text);

}  // namespace skein

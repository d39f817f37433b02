// Full-precision values of parameters that travel rounded.
#pragma once

#include <vector>

#include "core/span.h"
#include "optimize/owned_state.h"

namespace skein {

// One float for each element of the owned ranges, which a worker updates: 1/N of a plane. Memory is
// taken when first needed, and none for planes of Device::absent.
class Masters {
 public:
  // For a plane of `size` elements.
  Masters(std::size_t size, Allocate allocate) : values_(size, {"master"}, std::move(allocate)) {}

  void own(std::vector<Range> ranges) { values_.own(std::move(ranges)); }

  // Remembers `range` of the parameters; all of it must be owned.
  void keep(Range range, Span parameters);

  // Gives it back to them, rounded since, except where somebody wrote another value.
  void restore(Range range, Span parameters);

 private:
  OwnedState values_;
};

}  // namespace skein

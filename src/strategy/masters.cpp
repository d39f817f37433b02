#include "strategy/masters.h"

#include "kernels/bf16.h"
#include "kernels/kernels.h"

namespace skein {

void Masters::keep(Range range, Span parameters) {
  if (parameters.device == Device::absent) return;
  values_.split(
      range, [&](Range piece, Range at) { copy(values_.vector(0).at(at), parameters.at(piece)); });
}

void Masters::restore(Range range, Span parameters) {
  if (parameters.device == Device::absent) return;
  values_.split(range, [&](Range piece, Range at) {
    restore_rounded(parameters.at(piece), values_.vector(0).at(at));
  });
}

}  // namespace skein

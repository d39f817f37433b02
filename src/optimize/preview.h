// Where an update would take the parameters.
#pragma once

#include <memory>
#include <vector>

#include "optimize/optimizer.h"

namespace skein {

// Makes updates of any optimizer without changing its state: that is put aside and back, piece by
// piece, in memory of a few MB; all of it at once where the optimizer looks at whole tensors. Not
// thread-safe.
class Preview {
 public:
  // `allocate` says where the optimizer's state is. The optimizer must outlive this.
  Preview(Optimizer& optimizer, Allocate allocate)
      : optimizer_(optimizer), allocate_(std::move(allocate)) {}

  // As Optimizer::update(), on all of the plane.
  void update(Span parameters, Span gradients, const UpdateContext& context);

 private:
  void update_piece(Range piece, Range in_state, Span parameters, Span gradients,
                    const UpdateContext& context);

  Optimizer& optimizer_;
  Allocate allocate_;
  std::vector<std::unique_ptr<Memory>> aside_;  // one for each vector of the state
};

}  // namespace skein

#include "optimize/preview.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace skein {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // elements

}  // namespace

void Preview::update(Span parameters, Span gradients, const UpdateContext& context) {
  const OwnedState& state = optimizer_.owned_state();
  const std::size_t most = optimizer_.per_tensor() ? parameters.count : kPiece;
  while (aside_.size() < state.vector_count())
    aside_.push_back(allocate_(std::min(most, parameters.count)));
  for (std::size_t at = 0; at < parameters.count; at += most)
    state.split({at, std::min(most, parameters.count - at)}, [&](Range piece, Range in_state) {
      update_piece(piece, in_state, parameters, gradients, context);
    });
}

void Preview::update_piece(Range piece, Range in_state, Span parameters, Span gradients,
                           const UpdateContext& context) {
  OwnedState& state = optimizer_.owned_state();
  const Range kept{0, piece.count};
  for (std::size_t i = 0; i < aside_.size(); ++i)
    copy(aside_[i]->span().at(kept), state.vector(i).at(in_state));
  optimizer_.update(piece, parameters, gradients, context);
  for (std::size_t i = 0; i < aside_.size(); ++i)
    copy(state.vector(i).at(in_state), aside_[i]->span().at(kept));
}

}  // namespace skein

// What before_update() may do to the elements of an averaged gradient.
#pragma once

#include <functional>

#include "runtime/courier.h"
#include "skein/averaged_gradients.h"
#include "strategy/worker.h"
#include "torch/binding.h"
#include "torch/torch_stream.h"

namespace skein {

// Of the update that `worker` shows. Used by the user's thread while the worker waits for it.
class GradientSource final : public AveragedGradients::Source {
 public:
  GradientSource(const Binding& binding, Worker& worker, Courier& courier,
                 const TorchStream& stream)
      : binding_(binding), worker_(worker), courier_(courier), stream_(stream) {}

  void visit(double factor, const std::function<void(const GradientPiece&)>& change) override;
  double norm() override;

 private:
  Task<> ask_norm(double& squared) const;
  void visit(Range range, float scale, const std::function<void(const GradientPiece&)>& change);

  const Binding& binding_;
  Worker& worker_;
  Courier& courier_;
  const TorchStream& stream_;
};

}  // namespace skein

// Tells when a parameter is about to be read, or its gradient touched.
#pragma once

#include <torch/torch.h>

#include <exception>
#include <functional>
#include <memory>

#include "torch/binding.h"

namespace skein {

// While active, calls `before_read(slot)` before any torch operator of any thread runs on a tensor
// that aliases the arena's parameters or gradients: the parameter itself, a view, a tensor in a
// list; in forward, in backward, under NoGrad or InferenceMode; to read or to write, as zero_grad()
// does; for each slot that the tensor's memory touches. An operator that calls others is reported
// with each of them, so the same slot may come several times in a row. Operators only: code that
// takes data_ptr() and reads through it is not seen.
//
// `before_read` runs on the thread that runs the operator and may wait. It may use torch (that is
// not reported again) and may call deactivate(); then nothing more is reported, not even the
// remaining slots of the same operator.
//
// Torch swallows what an observer throws. So the first exception is kept for take_error(); until it
// is taken nothing more is reported, so that one broken wait does not become one per operator.
// Whoever waits in `before_read` must take the error after forward and backward: their results are
// worthless if there is one.
//
// Costs nothing while inactive. All members may be called from any thread.
class ReadHook {
 public:
  enum class Watch { parameters, gradients, parameters_and_gradients };

  ReadHook(const Binding& binding, std::function<void(int slot)> before_read,
           Watch watch = Watch::parameters_and_gradients);

  // Deactivates and waits for calls in flight. Not to be called from `before_read`.
  ~ReadHook();
  ReadHook(const ReadHook&) = delete;
  ReadHook& operator=(const ReadHook&) = delete;

  void activate();

  // Does not wait: on another thread a `before_read` may be running still.
  void deactivate();

  // What `before_read` threw, or null. Taken: the next call returns null.
  std::exception_ptr take_error();

  class Target;

 private:
  std::shared_ptr<Target> target_;
};

}  // namespace skein

// A number that a device is still computing.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "torch/device_stream.h"

namespace skein {

// Who asks for its value waits for it, and for nothing that was put on the device after it. On the
// host it is there at once.
class LateNumber {
 public:
  explicit LateNumber(double value = 0) : value_(value) {}

  // Of one element, of any type; computed on this thread's stream.
  explicit LateNumber(const torch::Tensor& number);

  double value() const;

 private:
  double value_ = 0;
  torch::Tensor host_;  // where it arrives; undefined: it is there
  std::shared_ptr<const StreamMark> there_;
};

}  // namespace skein

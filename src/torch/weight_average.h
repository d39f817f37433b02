// An exponential moving average of a module's parameters, one update of it for each that changed
// them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "torch/binding.h"
#include "torch/named_tensor.h"
#include "torch/safetensors.h"

namespace skein {

class WeightAverage {
 public:
  // How its tensors are named in a checkpoint: the number of its updates; before others' names.
  static constexpr const char* kTaken = "ema updates";
  static constexpr const char* kPrefix = "ema/";

  // ConfigError unless 0 <= decay < 1. `steps`: those made so far.
  WeightAverage(const Binding& binding, double decay, std::int64_t steps);

  // The module has made so many steps. The first that is new sets the average to the parameters;
  // later ones make it decay * average + (1 - decay) * parameters.
  void see(std::int64_t steps);

  // By the names that tensors_of() gives the parameters; the parameters themselves before the first
  // step. Copies.
  std::vector<NamedTensor> values() const;

  // For a checkpoint, and back: false where `file` has no average, or of another module. One that
  // it has not, and which is frozen now, is averaged as it is.
  std::vector<NamedTensor> state() const;
  bool restore(const SafeTensors& file, std::int64_t steps);

 private:
  struct Each {
    std::string name;
    torch::Tensor parameter, mean;
  };

  double decay_;
  std::int64_t seen_;
  std::int64_t taken_ = 0;
  std::vector<Each> all_;
};

}  // namespace skein

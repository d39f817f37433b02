// Other values in a module, for as long as these live.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "torch/distributed_impl.h"
#include "torch/named_tensor.h"

namespace skein {

// Puts values into tensors, which get their own back.
class LentValues {
 public:
  LentValues() = default;
  ~LentValues() {
    const torch::NoGradGuard no_grad;
    for (auto& [live, kept] : kept_) live.copy_(kept);
  }
  LentValues(const LentValues&) = delete;
  LentValues& operator=(const LentValues&) = delete;

  void put(const torch::Tensor& live, const torch::Tensor& value) {
    const torch::NoGradGuard no_grad;
    kept_.emplace_back(live.detach(), live.detach().clone());
    live.detach().copy_(value);
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;
};

// The mean of all workers' models, where they differ. All workers make one together, after
// settle().
class LentParameters {
 public:
  explicit LentParameters(Distributed::Impl& run);

 private:
  LentValues values_;
};

// The moving average, where that is to be judged. All workers make one together.
class LentAverage {
 public:
  LentAverage(Distributed::Impl& run, Weights weights);

 private:
  LentValues values_;
};

// Buffers, by name.
class LentBuffers {
 public:
  LentBuffers(const Binding& binding, const std::vector<NamedTensor>& values);

 private:
  LentValues values_;
};

// A module that judges and does not learn: eval(), though some of its parts may have been so
// before.
class LentMode {
 public:
  explicit LentMode(torch::nn::Module& module) {
    for (const auto& part : module.modules(false))
      parts_.emplace_back(part.get(), part->is_training());
    own_ = {&module, module.is_training()};
    module.eval();
  }
  ~LentMode() {
    own_.first->train(own_.second);
    for (auto& [part, training] : parts_)
      if (part->is_training() != training) part->train(training);
  }
  LentMode(const LentMode&) = delete;
  LentMode& operator=(const LentMode&) = delete;

 private:
  std::vector<std::pair<torch::nn::Module*, bool>> parts_;
  std::pair<torch::nn::Module*, bool> own_;
};

}  // namespace skein

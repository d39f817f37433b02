// Other values and another mode of a module, for as long as these live.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "torch/distributed_impl.h"
#include "torch/named_tensor.h"

namespace skein {

// What is judged: the mean of all workers' models where they differ, or the moving average, with
// `buffers`, which are asked for when the parameters are there. The module gets its own values
// back. All workers make one together, after settle().
class LentModel {
 public:
  LentModel(Distributed::Impl& run, Weights weights,
            const std::function<std::vector<NamedTensor>()>& buffers);
  ~LentModel();
  LentModel(const LentModel&) = delete;
  LentModel& operator=(const LentModel&) = delete;

 private:
  LentModel() = default;
  void put(const torch::Tensor& live, const torch::Tensor& value);

  std::vector<std::pair<torch::Tensor, torch::Tensor>> kept_;  // live tensors, and their values
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

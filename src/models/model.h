// The models that the command line can train.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/settings.h"

namespace skein {

// Parameters are registered in the order in which forward first uses them, as gradient buckets
// expect. Their first values come from torch's default generator, which the caller seeds.
class Model : public torch::nn::Module {
 public:
  // Images [B, C, H, W] to logits [B, classes]; tokens [B, T] to logits [B, T, classes].
  virtual torch::Tensor forward(torch::Tensor input) = 0;
};

std::vector<std::string> model_names();

// A model for samples of this shape (Dataset::sample_shape) and number of classes.
// ConfigError for an unknown name or setting, and for samples that the model cannot take.
std::shared_ptr<Model> make_model(const std::string& name,
                                  const std::vector<std::int64_t>& sample_shape,
                                  std::int64_t classes, const Settings& settings);

// Mean cross entropy over all predictions: one per image, one per character of a text. In float32,
// whatever the logits are.
torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& target);

struct Score {
  std::int64_t correct = 0;
  std::int64_t predictions = 0;
};
Score count_correct(const torch::Tensor& logits, const torch::Tensor& target);

}  // namespace skein

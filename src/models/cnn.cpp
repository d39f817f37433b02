#include <numeric>

#include "models/zoo.h"

namespace skein {
namespace {

torch::nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                       std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2));
}

// Group norm and not batch norm: it looks at one sample at a time, so workers that share a batch
// compute what one worker would.
torch::nn::GroupNorm norm(std::int64_t channels) {
  return torch::nn::GroupNorm(
      torch::nn::GroupNormOptions(std::gcd<std::int64_t>(4, channels), channels));
}

// Three convolutions, each halving the picture, and two linear layers. Small enough for a laptop's
// core: 1.8 M multiplications for a picture of 3 × 32 × 32.
class Cnn : public Model {
 public:
  Cnn(const std::vector<std::int64_t>& shape, std::int64_t width, std::int64_t classes)
      : conv1_(register_module("conv1", conv(shape[0], width, 5, 2))),
        norm1_(register_module("norm1", norm(width))),
        conv2_(register_module("conv2", conv(width, 2 * width, 3, 1))),
        norm2_(register_module("norm2", norm(2 * width))),
        conv3_(register_module("conv3", conv(2 * width, 4 * width, 3, 1))),
        norm3_(register_module("norm3", norm(4 * width))),
        hidden_(register_module(
            "hidden",
            torch::nn::Linear(4 * width * reduced(shape[1]) * reduced(shape[2]), 4 * width))),
        output_(register_module("output", torch::nn::Linear(4 * width, classes))) {}

  torch::Tensor forward(torch::Tensor input) override {
    auto x = torch::relu(normed(norm1_, conv1_->forward(input)));
    x = torch::relu(normed(norm2_, torch::max_pool2d(conv2_->forward(x), 2)));
    x = torch::relu(normed(norm3_, torch::max_pool2d(conv3_->forward(x), 2)));
    x = torch::relu(hidden_->forward(x.flatten(1)));
    return output_->forward(x);
  }

 private:
  // In float32, as autocast does it on GPUs; on CPUs it would not, and old LibTorch refuses.
  static torch::Tensor normed(torch::nn::GroupNorm& norm, const torch::Tensor& x) {
    return norm->forward(x.to(torch::kFloat32));
  }

  // A side of the picture after the convolutions.
  static std::int64_t reduced(std::int64_t side) { return (side + 1) / 2 / 2 / 2; }

  torch::nn::Conv2d conv1_;
  torch::nn::GroupNorm norm1_;
  torch::nn::Conv2d conv2_;
  torch::nn::GroupNorm norm2_;
  torch::nn::Conv2d conv3_;
  torch::nn::GroupNorm norm3_;
  torch::nn::Linear hidden_, output_;
};

}  // namespace

std::shared_ptr<Model> make_cnn(const ModelRequest& request, SettingsReader& settings) {
  const std::int64_t width = settings.integer("width", 16, 1, 4'096);
  settings.finish("model 'cnn'");
  require_images(request, 8);
  return std::make_shared<Cnn>(request.sample_shape, width, request.classes);
}

}  // namespace skein

// Residual networks (He et al. 2016).
#include "models/zoo.h"

namespace skein {
namespace {

torch::nn::Conv2d plain_conv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                             std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// relu(branch(x) + shortcut(x)), where the shortcut is x itself unless the shapes differ.
class ResidualBlockImpl : public torch::nn::Module {
 public:
  ResidualBlockImpl(torch::nn::Sequential branch, std::int64_t in, std::int64_t out,
                    std::int64_t stride)
      : branch_(register_module("branch", std::move(branch))) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("shortcut", torch::nn::Sequential(plain_conv(in, out, 1, stride),
                                                                  torch::nn::BatchNorm2d(out)));
  }

  torch::Tensor forward(torch::Tensor x) {
    auto y = branch_->forward(x);
    return torch::relu(y + (shortcut_.is_empty() ? x : shortcut_->forward(x)));
  }

 private:
  torch::nn::Sequential branch_;
  torch::nn::Sequential shortcut_{nullptr};
};
TORCH_MODULE(ResidualBlock);

// Two 3 × 3 convolutions.
ResidualBlock basic_block(std::int64_t in, std::int64_t width, std::int64_t stride) {
  return ResidualBlock(
      torch::nn::Sequential(plain_conv(in, width, 3, stride), torch::nn::BatchNorm2d(width),
                            torch::nn::ReLU(), plain_conv(width, width, 3, 1),
                            torch::nn::BatchNorm2d(width)),
      in, width, stride);
}

// 1 × 1 down, 3 × 3, 1 × 1 up to four times the width. The stride is in the 3 × 3, as torchvision
// has it.
ResidualBlock bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride) {
  return ResidualBlock(
      torch::nn::Sequential(plain_conv(in, width, 1, 1), torch::nn::BatchNorm2d(width),
                            torch::nn::ReLU(), plain_conv(width, width, 3, stride),
                            torch::nn::BatchNorm2d(width), torch::nn::ReLU(),
                            plain_conv(width, 4 * width, 1, 1), torch::nn::BatchNorm2d(4 * width)),
      in, 4 * width, stride);
}

class ResNet : public Model {
 public:
  ResNet(torch::nn::Sequential stem, torch::nn::Sequential blocks, std::int64_t features,
         std::int64_t classes)
      : stem_(register_module("stem", std::move(stem))),
        blocks_(register_module("blocks", std::move(blocks))),
        output_(register_module("output", torch::nn::Linear(features, classes))) {
    for (const auto& module : modules(false))
      if (auto* layer = module->as<torch::nn::Conv2d>())
        torch::nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
  }

  torch::Tensor forward(torch::Tensor input) override {
    auto x = blocks_->forward(stem_->forward(input));
    return output_->forward(x.mean({2, 3}));
  }

 private:
  torch::nn::Sequential stem_, blocks_;
  torch::nn::Linear output_;
};

}  // namespace

// The form for small pictures: a 3 × 3 stem at full resolution.
std::shared_ptr<Model> make_resnet18(const ModelRequest& request, SettingsReader& settings) {
  const std::int64_t first = settings.integer("width", 64, 1, 4'096);
  settings.finish("model 'resnet18'");
  require_images(request, 1);
  torch::nn::Sequential stem(plain_conv(request.sample_shape[0], first, 3, 1),
                             torch::nn::BatchNorm2d(first), torch::nn::ReLU());
  torch::nn::Sequential blocks;
  std::int64_t in = first;
  for (const std::int64_t width : {first, 2 * first, 4 * first, 8 * first})
    for (int i = 0; i < 2; ++i) {
      blocks->push_back(basic_block(in, width, i == 0 && width > first ? 2 : 1));
      in = width;
    }
  return std::make_shared<ResNet>(stem, blocks, in, request.classes);
}

// The ImageNet form: a 7 × 7 stem with stride 2 and a max-pool.
std::shared_ptr<Model> make_resnet50(const ModelRequest& request, SettingsReader& settings) {
  settings.finish("model 'resnet50'");
  require_images(request, 1);
  torch::nn::Sequential stem(
      plain_conv(request.sample_shape[0], 64, 7, 2), torch::nn::BatchNorm2d(64), torch::nn::ReLU(),
      torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  torch::nn::Sequential blocks;
  struct Stage {
    std::int64_t width;
    int blocks;
  };
  std::int64_t in = 64;
  for (const auto& [width, count] : {Stage{64, 3}, {128, 4}, {256, 6}, {512, 3}})
    for (int i = 0; i < count; ++i) {
      blocks->push_back(bottleneck(in, width, i == 0 && width > 64 ? 2 : 1));
      in = 4 * width;
    }
  return std::make_shared<ResNet>(stem, blocks, in, request.classes);
}

}  // namespace skein

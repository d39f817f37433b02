#include <functional>
#include <numeric>

#include "models/zoo.h"

namespace skein {
namespace {

// `depth` hidden layers of `width` on the flattened image.
class Mlp : public Model {
 public:
  Mlp(std::int64_t inputs, std::int64_t width, std::int64_t depth, std::int64_t classes) {
    for (std::int64_t i = 0; i < depth; ++i) {
      layers_->push_back(torch::nn::Linear(i == 0 ? inputs : width, width));
      layers_->push_back(torch::nn::ReLU());
    }
    layers_->push_back(torch::nn::Linear(depth == 0 ? inputs : width, classes));
    register_module("layers", layers_);
  }

  torch::Tensor forward(torch::Tensor input) override { return layers_->forward(input.flatten(1)); }

 private:
  torch::nn::Sequential layers_;
};

}  // namespace

std::shared_ptr<Model> make_mlp(const ModelRequest& request, SettingsReader& settings) {
  const std::int64_t width = settings.integer("width", 256, 1, 65'536);
  const std::int64_t depth = settings.integer("depth", 2, 0, 1'000);
  settings.finish("model 'mlp'");
  require_images(request, 1);
  const std::int64_t inputs = std::reduce(request.sample_shape.begin(), request.sample_shape.end(),
                                          std::int64_t{1}, std::multiplies<>());
  return std::make_shared<Mlp>(inputs, width, depth, request.classes);
}

}  // namespace skein

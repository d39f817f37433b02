#include "models/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "models/zoo.h"
#include "skein/error.h"

namespace skein {
namespace {

struct Entry {
  const char* name;
  std::shared_ptr<Model> (*make)(const ModelRequest&, SettingsReader&);
};
constexpr std::array<Entry, 5> kModels{{{"mlp", make_mlp},
                                        {"cnn", make_cnn},
                                        {"resnet18", make_resnet18},
                                        {"resnet50", make_resnet50},
                                        {"gpt", make_gpt}}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

std::shared_ptr<Model> make_model(const std::string& name,
                                  const std::vector<std::int64_t>& sample_shape,
                                  std::int64_t classes, const Settings& settings) {
  SKEIN_CHECK(classes > 0, "{} classes", classes);
  for (const Entry& entry : kModels) {
    if (entry.name != name) continue;
    SettingsReader reader("model", settings);
    return entry.make({name, sample_shape, classes}, reader);
  }
  throw ConfigError(
      fmt::format("unknown model '{}': expected one of {}", name, fmt::join(model_names(), ", ")));
}

void require_images(const ModelRequest& request, std::int64_t least_side) {
  if (request.sample_shape.size() != 3)
    throw ConfigError(
        fmt::format("model '{}' needs images (channels, height, width), but a sample of this data "
                    "has the shape ({}){}",
                    request.model, fmt::join(request.sample_shape, ", "),
                    request.sample_shape.size() == 1 ? ": use model 'gpt' for text" : ""));
  if (std::min(request.sample_shape[1], request.sample_shape[2]) < least_side)
    throw ConfigError(fmt::format(
        "model '{}' needs images of at least {} x {} pixels, these are {} x {}", request.model,
        least_side, least_side, request.sample_shape[1], request.sample_shape[2]));
}

torch::Tensor loss_of(const torch::Tensor& logits, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(
      logits.reshape({-1, logits.size(-1)}).to(torch::kFloat32), target.reshape({-1}));
}

Score count_correct(const torch::Tensor& logits, const torch::Tensor& target) {
  const torch::NoGradGuard guard;
  return {logits.argmax(-1).eq(target).sum().item<std::int64_t>(), target.numel()};
}

}  // namespace skein

// How each model is made. For model.cpp alone; others call make_model().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/settings.h"
#include "models/model.h"

namespace skein {

// What there is to learn.
struct ModelRequest {
  std::string model;  // its name, for messages
  std::vector<std::int64_t> sample_shape;
  std::int64_t classes;
};

// Each reads its settings, checks the request and throws ConfigError where they do not fit.
std::shared_ptr<Model> make_mlp(const ModelRequest& request, SettingsReader& settings);
std::shared_ptr<Model> make_cnn(const ModelRequest& request, SettingsReader& settings);
std::shared_ptr<Model> make_resnet18(const ModelRequest& request, SettingsReader& settings);
std::shared_ptr<Model> make_resnet50(const ModelRequest& request, SettingsReader& settings);
std::shared_ptr<Model> make_gpt(const ModelRequest& request, SettingsReader& settings);

// ConfigError unless samples are images (C, H, W) of at least `least_side` pixels each way.
void require_images(const ModelRequest& request, std::int64_t least_side);

}  // namespace skein

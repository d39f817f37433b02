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
struct Job {
  std::string model;  // its name, for messages
  std::vector<std::int64_t> sample_shape;
  std::int64_t classes;
};

// Each reads its settings, checks the job and throws ConfigError where they do not fit.
std::shared_ptr<Model> make_mlp(const Job& job, SettingsReader& settings);
std::shared_ptr<Model> make_cnn(const Job& job, SettingsReader& settings);
std::shared_ptr<Model> make_resnet18(const Job& job, SettingsReader& settings);
std::shared_ptr<Model> make_resnet50(const Job& job, SettingsReader& settings);
std::shared_ptr<Model> make_gpt(const Job& job, SettingsReader& settings);

// ConfigError unless samples are images (C, H, W) of at least `least_side` pixels each way.
void require_images(const Job& job, std::int64_t least_side);

}  // namespace skein

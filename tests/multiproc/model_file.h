// Reads a safetensors file without torch.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multiproc/process.h"

namespace skein::testing {

// Every float32 tensor by name; empty when the file is not there.
inline std::map<std::string, std::vector<float>> read_model(const std::string& path) {
  const std::string file = contents(path);
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) return {};
  std::memcpy(&length, file.data(), sizeof(length));
  const auto header = nlohmann::json::parse(file.substr(sizeof(length), length));
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__" || tensor["dtype"] != "F32") continue;
    const std::size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    auto& values = tensors[name];
    values.resize((end - begin) / sizeof(float));
    std::memcpy(values.data(), file.data() + sizeof(length) + length + begin, end - begin);
  }
  return tensors;
}

// One after the other, in order of name.
inline std::vector<float> flat(const std::map<std::string, std::vector<float>>& tensors) {
  std::vector<float> all;
  for (const auto& [name, values] : tensors) all.insert(all.end(), values.begin(), values.end());
  return all;
}

// The distance of two models over the length of one, all parameters as one vector.
inline double difference(const std::string& one, const std::string& two) {
  const auto a = flat(read_model(one)), b = flat(read_model(two));
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(a.size(), b.size());
  double distance = 0, length = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    distance += std::pow(static_cast<double>(a[i]) - static_cast<double>(b.at(i)), 2);
    length += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(distance / length);
}

}  // namespace skein::testing

// Models as lists of layers: what each holds and how much it computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::sim {

// One layer, and the work of its forward on one sample.
struct LayerWork {
  std::string name;
  std::vector<std::int64_t> parameters;  // elements of each tensor
  std::int64_t multiply_adds = 0;        // of convolutions and matrix products
  std::int64_t elementwise = 0;          // operations of everything else

  std::int64_t operations() const { return multiply_adds + elementwise; }
};

// In the order of forward.
using Architecture = std::vector<LayerWork>;

// Elementwise operations per element.
inline constexpr std::int64_t kActivation = 1;
inline constexpr std::int64_t kAddition = 1;
inline constexpr std::int64_t kNormalisation = 4;  // mean, variance, normalise, scale and shift
inline constexpr std::int64_t kSoftmax = 4;        // largest, exponential, sum, divide

Architecture resnet50();     // 224 x 224, 1000 classes, stride in the 3 x 3 convolutions
Architecture densenet201();  // 224 x 224, 1000 classes
Architecture inceptionv4();  // 299 x 299, 1000 classes
Architecture bert_base();    // pre-training, 64 tokens; the decoder's matrix is the embedding's
Architecture bert_large();

}  // namespace skein::sim

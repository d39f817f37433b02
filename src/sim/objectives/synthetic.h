// Samples for a classifier: Gaussian clouds around random class centres.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.h"

namespace skein::sim {

struct Samples {
  std::size_t features = 0;
  std::vector<float> inputs;  // sample by sample
  std::vector<int> labels;

  std::size_t size() const { return labels.size(); }
  std::span<const float> input(std::size_t i) const {
    return {inputs.data() + i * features, features};
  }
};

// Where the classes lie. Their distances are such that, with 10 classes and a few dozen features,
// the best classifier, which is linear, is right nine times out of ten.
class ClassCentres {
 public:
  ClassCentres(int classes, std::size_t features, Rng rng);

  // `count` samples, the classes in turn, with unit Gaussian noise on every feature.
  Samples draw(std::size_t count, Rng rng) const;

 private:
  int classes_;
  std::size_t features_;
  std::vector<double> centres_;  // class by class
};

}  // namespace skein::sim

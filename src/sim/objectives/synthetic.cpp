#include "sim/objectives/synthetic.h"

#include <cmath>

namespace skein::sim {
namespace {

// Root mean square length of a centre; two of them are √2 times that apart.
constexpr double kSpread = 3.25;

}  // namespace

ClassCentres::ClassCentres(int classes, std::size_t features, Rng rng)
    : classes_(classes),
      features_(features),
      centres_(static_cast<std::size_t>(classes) * features) {
  const double deviation = kSpread / std::sqrt(static_cast<double>(features));
  for (double& value : centres_) value = deviation * rng.normal();
}

Samples ClassCentres::draw(std::size_t count, Rng rng) const {
  Samples samples{features_, {}, {}};
  samples.inputs.reserve(count * features_);
  samples.labels.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t label = i % static_cast<std::size_t>(classes_);
    samples.labels.push_back(static_cast<int>(label));
    const double* centre = centres_.data() + label * features_;
    for (std::size_t f = 0; f < features_; ++f) {
      samples.inputs.push_back(static_cast<float>(centre[f] + rng.normal()));
    }
  }
  return samples;
}

}  // namespace skein::sim

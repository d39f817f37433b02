// Small images held in memory as bytes: what glyphs, MNIST and CIFAR-10 are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/normalise.h"

namespace skein {

// All images of one part of a data set.
struct Images {
  std::int64_t channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // image after image, each channels planes of height × width
  std::vector<std::uint8_t> labels;  // one per image

  std::size_t bytes_each() const { return static_cast<std::size_t>(channels * height * width); }
};

class ImageTable : public Dataset {
 public:
  // There is at least one image, pixels and labels agree in number and labels are below `classes`;
  // aborts otherwise.
  ImageTable(Images images, std::int64_t classes, const std::vector<Statistics>& statistics);

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.labels.size()); }
  std::vector<std::int64_t> sample_shape() const override;
  std::int64_t classes() const override { return classes_; }
  Batch get(std::span<const std::uint32_t> indices) const override;

 private:
  Images images_;
  std::int64_t classes_;
  Normaliser normaliser_;
};

}  // namespace skein

#include "data/image_table.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace skein {

ImageTable::ImageTable(Images images, std::int64_t classes,
                       const std::vector<Statistics>& statistics)
    : images_(std::move(images)), classes_(classes), normaliser_(statistics) {
  SKEIN_CHECK(std::cmp_equal(images_.channels, normaliser_.channels()),
              "{} channels, statistics of {}", images_.channels, normaliser_.channels());
  SKEIN_CHECK(!images_.labels.empty() &&
                  images_.pixels.size() == images_.labels.size() * images_.bytes_each(),
              "{} labels, {} bytes of images", images_.labels.size(), images_.pixels.size());
  SKEIN_CHECK(*std::ranges::max_element(images_.labels) < classes, "a label of {} or more",
              classes);
}

std::vector<std::int64_t> ImageTable::sample_shape() const {
  return {images_.channels, images_.height, images_.width};
}

Batch ImageTable::get(std::span<const std::uint32_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  Batch batch{torch::empty({count, images_.channels, images_.height, images_.width}),
              torch::empty({count}, torch::kInt64)};
  float* data = batch.data.data_ptr<float>();
  std::int64_t* target = batch.target.data_ptr<std::int64_t>();
  const std::size_t each = images_.bytes_each();
  for (const std::uint32_t index : indices) {
    SKEIN_CHECK(index < images_.labels.size(), "sample {} of {}", index, images_.labels.size());
    normaliser_.planes(std::span(images_.pixels).subspan(index * each, each), data);
    data += each;
    *target++ = images_.labels[index];
  }
  return batch;
}

}  // namespace skein

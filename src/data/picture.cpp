#include "data/picture.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/check.h"

namespace skein {
namespace {

// The source pixels that make one target pixel: weights for first, first + 1, …, of sum 1.
struct Tap {
  int first = 0;
  std::vector<float> weights;
};

// Along one axis: `length` pixels scaled by `scale` (target over source), of which `side` are kept
// from the middle.
std::vector<Tap> make_taps(int length, int side, double scale) {
  // The triangle's half width, in source pixels.
  const double reach = std::max(1.0, 1.0 / scale);
  std::vector<Tap> taps;
  for (int i = 0; i < side; ++i) {
    const double centre = length / 2.0 + (i + 0.5 - side / 2.0) / scale - 0.5;
    const int first = std::max(0, static_cast<int>(std::floor(centre - reach)) + 1);
    const int last = std::min(length - 1, static_cast<int>(std::ceil(centre + reach)) - 1);
    Tap tap{first, {}};
    double sum = 0;
    for (int at = first; at <= last; ++at) {
      const double weight = 1.0 - std::abs(at - centre) / reach;
      tap.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : tap.weights) weight /= static_cast<float>(sum);
    taps.push_back(std::move(tap));
  }
  return taps;
}

// Rows of `width` pixels to rows of taps.size().
std::vector<float> across(const Picture& picture, std::span<const Tap> taps) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(picture.height) * taps.size() * 3);
  for (int y = 0; y < picture.height; ++y)
    for (const Tap& tap : taps) {
      const std::uint8_t* source =
          picture.rgb.data() + 3 * (static_cast<std::ptrdiff_t>(y) * picture.width + tap.first);
      float sum[3] = {0, 0, 0};
      for (const float weight : tap.weights)
        for (float& channel : sum) channel += weight * static_cast<float>(*source++);
      out.insert(out.end(), std::begin(sum), std::end(sum));
    }
  return out;
}

}  // namespace

Picture resize_and_crop(const Picture& picture, int side) {
  SKEIN_CHECK(side > 0 && picture.width > 0 && picture.height > 0, "{} x {} to {}", picture.width,
              picture.height, side);
  const double scale = static_cast<double>(side) / std::min(picture.width, picture.height);
  const auto columns = make_taps(picture.width, side, scale);
  const std::vector<float> rows = across(picture, columns);
  const std::size_t stride = static_cast<std::size_t>(side) * 3;
  Picture out{side, side, {}};
  out.rgb.reserve(stride * static_cast<std::size_t>(side));
  std::vector<float> sum(stride);
  for (const Tap& tap : make_taps(picture.height, side, scale)) {
    std::ranges::fill(sum, 0.0f);
    const float* source = rows.data() + static_cast<std::size_t>(tap.first) * stride;
    for (const float weight : tap.weights)
      for (float& value : sum) value += weight * *source++;
    for (const float value : sum)
      out.rgb.push_back(static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)));
  }
  return out;
}

}  // namespace skein

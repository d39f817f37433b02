#include "data/canvas.h"

#include <algorithm>

namespace skein {
namespace {

constexpr std::int32_t kHalf = Canvas::kPixel / 2;

std::int64_t square(std::int64_t value) { return value * value; }

// Squared distance of `at` from the line between `from` and `to`.
std::int64_t squared_distance(Point at, Point from, Point to) {
  const std::int64_t dx = to.x - from.x, dy = to.y - from.y;
  const std::int64_t px = at.x - from.x, py = at.y - from.y;
  const std::int64_t length2 = dx * dx + dy * dy;
  const std::int64_t along = px * dx + py * dy;
  if (along <= 0) return px * px + py * py;
  if (along >= length2) return square(at.x - to.x) + square(at.y - to.y);
  return square(px * dy - py * dx) / length2;
}

// The pixels whose centres lie in [low, high], cut to the picture.
std::pair<std::int32_t, std::int32_t> pixels_between(std::int32_t low, std::int32_t high) {
  return {std::max(0, (low - kHalf) >> 8), std::min(Canvas::kSide - 1, (high - kHalf) >> 8)};
}

}  // namespace

void Canvas::gradient(const std::array<Colour, 4>& corners) {
  constexpr std::int32_t last = kSide - 1;
  std::size_t i = 0;
  for (std::size_t c = 0; c < 3; ++c)
    for (std::int32_t y = 0; y < kSide; ++y) {
      const std::int32_t left = corners[0][c] * (last - y) + corners[2][c] * y;
      const std::int32_t right = corners[1][c] * (last - y) + corners[3][c] * y;
      for (std::int32_t x = 0; x < kSide; ++x)
        pixels_[i++] = static_cast<std::uint8_t>((left * (last - x) + right * x) / (last * last));
    }
}

void Canvas::cover(Mask& mask, Point from, Point to, std::int32_t radius) {
  // Full inside `inner`, nothing outside `outer`, in between linear in the squared distance: near
  // enough to the covered area, and needs no square root.
  const std::int64_t inner = square(radius - kHalf), outer = square(radius + kHalf);
  const std::int32_t reach = radius + kHalf;
  const auto [x0, x1] =
      pixels_between(std::min(from.x, to.x) - reach, std::max(from.x, to.x) + reach);
  const auto [y0, y1] =
      pixels_between(std::min(from.y, to.y) - reach, std::max(from.y, to.y) + reach);
  for (std::int32_t y = y0; y <= y1; ++y)
    for (std::int32_t x = x0; x <= x1; ++x) {
      const Point centre{x * kPixel + kHalf, y * kPixel + kHalf};
      const std::int64_t distance2 = squared_distance(centre, from, to);
      if (distance2 >= outer) continue;
      const std::int64_t covered =
          distance2 <= inner ? 256 : 256 * (outer - distance2) / (outer - inner);
      auto& pixel = mask[static_cast<std::size_t>(y * kSide + x)];
      pixel = std::max(pixel, static_cast<std::uint16_t>(covered));
    }
}

void Canvas::stroke(std::span<const Point> points, std::int32_t radius, Colour colour) {
  // One mask for all lines, so that their joints are not painted twice.
  Mask mask{};
  for (std::size_t i = 1; i < points.size(); ++i) cover(mask, points[i - 1], points[i], radius);
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t i = 0; i < mask.size(); ++i) {
      auto& value = pixels_[c * mask.size() + i];
      value = static_cast<std::uint8_t>((value * (256 - mask[i]) + colour[c] * mask[i]) >> 8);
    }
}

void Canvas::add(std::span<const std::int8_t, kBytes> noise) {
  for (std::size_t i = 0; i < kBytes; ++i)
    pixels_[i] = static_cast<std::uint8_t>(std::clamp(pixels_[i] + noise[i], 0, 255));
}

}  // namespace skein

// Draws strokes on a small picture in whole numbers only, so that every machine makes the same
// bytes: floating point may be contracted differently, and libm differs between machines.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace skein {

// Positions and lengths are in 1/256 of a pixel; pixel (x, y) has its centre at 256 x + 128.
struct Point {
  std::int32_t x = 0, y = 0;
};

using Colour = std::array<std::uint8_t, 3>;

class Canvas {
 public:
  static constexpr std::int32_t kSide = 32;    // pixels
  static constexpr std::int32_t kPixel = 256;  // a pixel's side in units
  static constexpr std::size_t kBytes = 3 * kSide * kSide;

  // Fills with colours between those of the four corners: upper left, upper right, lower left,
  // lower right.
  void gradient(const std::array<Colour, 4>& corners);

  // Draws the lines from point to point with round ends, of half width `radius` (at least 128),
  // smooth at the edge. Points may lie outside.
  void stroke(std::span<const Point> points, std::int32_t radius, Colour colour);

  // Adds to every value `noise[i]`, kept within a byte.
  void add(std::span<const std::int8_t, kBytes> noise);

  // Red, green and blue plane, row by row.
  std::span<const std::uint8_t, kBytes> bytes() const { return pixels_; }

 private:
  using Mask = std::array<std::uint16_t, kSide * kSide>;  // how much of a pixel is covered, of 256

  static void cover(Mask& mask, Point from, Point to, std::int32_t radius);

  std::array<std::uint8_t, kBytes> pixels_{};
};

}  // namespace skein

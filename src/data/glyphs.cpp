#include "data/glyphs.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "data/image_table.h"

namespace skein {
namespace {

constexpr std::uint64_t kDefaultSeed = 20;
constexpr std::size_t kDigits = 10;
constexpr std::size_t kMostPoints = 12;

// The digits as lines on a grid of 16 × 16 whose middle is (8, 8).
struct Digit {
  std::size_t count;
  std::array<Point, kMostPoints> points;
};
constexpr std::array<Digit, kDigits> kShapes{{
    {9, {{{8, 1}, {4, 3}, {3, 8}, {4, 13}, {8, 15}, {12, 13}, {13, 8}, {12, 3}, {8, 1}}}},
    {3, {{{5, 4}, {8, 1}, {8, 15}}}},
    {7, {{{3, 4}, {5, 1}, {10, 1}, {13, 4}, {12, 7}, {3, 15}, {13, 15}}}},
    {9, {{{3, 2}, {9, 1}, {12, 4}, {11, 7}, {7, 8}, {11, 9}, {13, 12}, {10, 15}, {3, 14}}}},
    {4, {{{10, 15}, {10, 1}, {3, 10}, {13, 10}}}},
    {7, {{{12, 1}, {4, 1}, {4, 7}, {9, 6}, {13, 10}, {10, 15}, {3, 14}}}},
    {9, {{{11, 1}, {6, 4}, {3, 9}, {4, 13}, {8, 15}, {12, 13}, {12, 9}, {8, 7}, {4, 9}}}},
    {3, {{{3, 1}, {13, 1}, {7, 15}}}},
    {11,
     {{{8, 8},
       {4, 5},
       {6, 1},
       {10, 1},
       {12, 5},
       {8, 8},
       {3, 11},
       {5, 15},
       {11, 15},
       {13, 11},
       {8, 8}}}},
    {9, {{{12, 7}, {8, 9}, {4, 7}, {4, 3}, {8, 1}, {12, 3}, {13, 7}, {10, 12}, {5, 15}}}},
}};

std::int32_t between(Rng& rng, std::int32_t low, std::int32_t high) {
  return low + static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(high - low + 1)));
}

// A linear map, in 1/4096.
struct Affine {
  std::int32_t xx, xy, yx, yy;

  Point operator()(Point p) const {
    return {(xx * p.x + xy * p.y) >> 12, (yx * p.x + yy * p.y) >> 12};
  }
};

// Turn · slant · stretch. The turn by an angle with tangent t of its half is exact in fractions:
// cos = (1 − t²) / (1 + t²), sin = 2 t / (1 + t²).
Affine random_affine(Rng& rng) {
  const std::int32_t t = between(rng, -220, 220);  // in 1/1024: up to 24 degrees either way
  const std::int32_t whole = 1024 * 1024 + t * t;
  const auto part = [&](std::int64_t value) {
    return static_cast<std::int32_t>(value * 4096 / whole);
  };
  const std::int32_t cosine = part(1024 * 1024 - t * t), sine = part(2 * 1024 * t);
  const std::int32_t width = between(rng, 2300, 4300), height = between(rng, 2700, 4600);
  const std::int32_t slant = between(rng, -1000, 1000);
  const std::int32_t slanted = (slant * height) >> 12;
  return {(cosine * width) >> 12, (cosine * slanted - sine * height) >> 12, (sine * width) >> 12,
          (sine * slanted + cosine * height) >> 12};
}

Colour random_colour(Rng& rng, std::int32_t low, std::int32_t high) {
  Colour colour;
  for (auto& value : colour) value = static_cast<std::uint8_t>(between(rng, low, high));
  return colour;
}

// Ink and paper differ in lightness, either way round.
struct Palette {
  std::int32_t paper_low, paper_high, ink_low, ink_high;
};

Palette random_palette(Rng& rng) {
  const std::int32_t dark = between(rng, 10, 75), light = between(rng, 125, 195);
  if (rng.below(2) == 0) return {dark, dark + 60, light, light + 60};
  return {light, light + 60, dark, dark + 60};
}

void draw_background(Canvas& canvas, Rng& rng, const Palette& palette) {
  std::array<Colour, 4> corners;
  for (auto& corner : corners) corner = random_colour(rng, palette.paper_low, palette.paper_high);
  canvas.gradient(corners);
}

// Short lines in ink, behind the digit.
void draw_clutter(Canvas& canvas, Rng& rng, const Palette& palette) {
  for (std::int32_t lines = between(rng, 2, 5); lines > 0; --lines) {
    const Point from{between(rng, 0, 8192), between(rng, 0, 8192)};
    const Point to{from.x + between(rng, -1900, 1900), from.y + between(rng, -1900, 1900)};
    const std::array ends{from, to};
    const Colour colour = random_colour(rng, palette.ink_low, palette.ink_high);
    canvas.stroke(ends, between(rng, 128, 170), colour);
  }
}

void draw_digit(Canvas& canvas, Rng& rng, const Palette& palette, const Digit& digit) {
  const Affine affine = random_affine(rng);
  const Point middle{4096 + between(rng, -1000, 1000), 4096 + between(rng, -900, 900)};
  std::array<Point, kMostPoints> points;
  for (std::size_t i = 0; i < digit.count; ++i) {
    // 16 grid steps are 26 pixels before the map.
    const Point placed{(digit.points[i].x - 8) * 416 + between(rng, -150, 150),
                       (digit.points[i].y - 8) * 416 + between(rng, -150, 150)};
    const Point moved = affine(placed);
    points[i] = {middle.x + moved.x, middle.y + moved.y};
  }
  const std::int32_t radius = between(rng, 190, 420);
  canvas.stroke(std::span(points).first(digit.count), radius,
                random_colour(rng, palette.ink_low, palette.ink_high));
}

// The mean of two uniform bytes, scaled: a triangle from −strength to strength.
void add_noise(Canvas& canvas, Rng& rng) {
  const std::int32_t strength = between(rng, 10, 55);
  std::array<std::int8_t, Canvas::kBytes> noise;
  static_assert(Canvas::kBytes % 4 == 0);
  for (std::size_t i = 0; i < noise.size(); i += 4) {
    const std::uint64_t bits = rng();
    for (std::size_t k = 0; k < 4; ++k) {
      const auto sum = static_cast<std::int32_t>((bits >> (16 * k)) & 255) +
                       static_cast<std::int32_t>((bits >> (16 * k + 8)) & 255) - 255;
      noise[i + k] = static_cast<std::int8_t>((sum * strength) >> 8);
    }
  }
  canvas.add(noise);
}

Images draw_part(std::uint64_t seed, GlyphPart part, std::int64_t count) {
  Images images{3, Canvas::kSide, Canvas::kSide, {}, {}};
  images.pixels.reserve(static_cast<std::size_t>(count) * Canvas::kBytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Canvas canvas = draw_glyph(seed, part, i);
    images.pixels.insert(images.pixels.end(), canvas.bytes().begin(), canvas.bytes().end());
    images.labels.push_back(static_cast<std::uint8_t>(i % kDigits));
  }
  return images;
}

}  // namespace

Canvas draw_glyph(std::uint64_t seed, GlyphPart part, std::uint32_t index) {
  Rng rng = Rng(seed).split(static_cast<std::uint64_t>(part)).split(index);
  Canvas canvas;
  const Palette palette = random_palette(rng);
  draw_background(canvas, rng, palette);
  draw_clutter(canvas, rng, palette);
  draw_digit(canvas, rng, palette, kShapes[index % kDigits]);
  add_noise(canvas, rng);
  return canvas;
}

DataSets open_glyphs(const Settings& settings, std::uint64_t run_seed) {
  constexpr std::int64_t most = 1'000'000;  // 3 GB
  SettingsReader reader("data", settings);
  const std::int64_t train = reader.integer("train", 12'000, 1, most);
  const std::int64_t test = reader.integer("test", 2'000, 1, most);
  const std::uint64_t seed = reader.seed("seed", kDefaultSeed, run_seed);
  reader.finish("data 'glyphs'");
  const std::vector<Statistics> statistics(3, {0.50, 0.25});
  const auto table = [&](GlyphPart part, std::int64_t count) {
    return std::make_shared<ImageTable>(draw_part(seed, part, count), kDigits, statistics);
  };
  return {table(GlyphPart::train, train), table(GlyphPart::test, test), "glyphs"};
}

}  // namespace skein

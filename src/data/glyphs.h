// The built-in data set: 3 × 32 × 32 pictures of the ten digits, drawn by the program.
//
// A digit is a few lines under a random turn, slant, stretch, shift and wobble, in a random colour
// lighter or darker than a shaded background, between other lines and under noise. Picture i of a
// part depends on (seed, part, i) alone, is the same bytes on every machine, and shows digit i
// % 10.
#pragma once

#include <cstdint>

#include "data/canvas.h"
#include "data/dataset.h"
#include "data/settings.h"

namespace skein {

enum class GlyphPart : std::uint64_t { train, test };

Canvas draw_glyph(std::uint64_t seed, GlyphPart part, std::uint32_t index);

// Settings: train (12000) and test (2000) pictures, seed.
DataSets open_glyphs(const Settings& settings, std::uint64_t run_seed);

}  // namespace skein

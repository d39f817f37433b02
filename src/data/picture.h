// One picture in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace skein {

// Row by row, each pixel red, green and blue.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

// Scales the shorter side to `side` and cuts the middle `side` × `side` pixels out. Bilinear; when
// it makes the picture smaller each pixel is an average over all that it covers.
Picture resize_and_crop(const Picture& picture, int side);

}  // namespace skein

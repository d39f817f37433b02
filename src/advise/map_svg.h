// The map as a picture.
#pragma once

#include <string>

#include "advise/map.h"

namespace skein::advise {

// A whole SVG document: a cell for each answer with its strategy's colour and letter and the gain
// over plain allreduce, axes with units, a legend, and a ring where `advice`'s own cluster is.
// Light or dark as the viewer prefers; the colours are told apart by the colour-blind (Okabe and
// Ito).
std::string map_svg(const Map& map, const Advice& advice);

}  // namespace skein::advise

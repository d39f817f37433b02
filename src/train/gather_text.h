// Text that workers tell each other.
#pragma once

#include <string>
#include <vector>

#include "skein/world.h"

namespace skein {

// Every worker's text, by rank, without zeros in it; nothing of one that is lost. All call it.
std::vector<std::string> gather_text(World& world, const std::string& own);

}  // namespace skein

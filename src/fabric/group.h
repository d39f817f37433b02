// Some ranks of a fabric as a fabric of their own.
#pragma once

#include <memory>

#include "fabric/fabric.h"

namespace skein {

// Those of `whole` who pass the same colour form a group, in which ranks follow their order. All
// ranks call it, in the same order among their calls of allot_channels(). Groups and the whole
// carry operations at the same time. A group has the channels 0 to kChannelBlock − 1, and errors
// name ranks of the whole, which must outlive it.
Task<std::unique_ptr<Fabric>> split(Fabric& whole, int colour, Limit limit);

}  // namespace skein

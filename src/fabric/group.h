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

// The same where all of the whole know the members, in the order of the group's ranks. All ranks
// call it; null for those that are not in it.
std::unique_ptr<Fabric> group_apart(Fabric& whole, std::vector<int> members);

// A group whose members are known, in the order of its ranks. Its channels are the whole's: a
// channel that it uses is used for nothing else between its members.
std::unique_ptr<Fabric> group_of(Fabric& whole, std::vector<int> members);

}  // namespace skein

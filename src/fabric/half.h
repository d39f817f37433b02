// Collectives whose messages are bfloat16: half the bytes of a ring, written once for every fabric.
//
// Every rank sends each other rank its message directly, in rounds: in round s, rank r sends to
// rank r − s and receives from rank r + s. So nobody receives from all at once, a value is rounded
// once however many ranks there are, and besides the buffer only the packed messages under way
// (Chunking::ahead) and the one that arrives are held.
#pragma once

#include "fabric/fabric.h"

namespace skein {

// Rank r ends with, in its shard, ((own + g_{r+1}) + g_{r+2}) + … in float32, where g are the other
// ranks' values, each rounded once, and its own are not. Against the exact sum of N values that is
// off by at most (2^-8 + N·2^-24) Σ|g_i|, as long as they are normal numbers.
Task<> half_reduce_scatter(Fabric& fabric, const Operation& operation, Span buffer);

// Every rank ends with all shards, rounded: its own too, so that all have the same bits.
Task<> half_all_gather(Fabric& fabric, const Operation& operation, Span buffer);

// One after the other.
Task<> half_all_reduce(Fabric& fabric, const Operation& operation, Span buffer);

}  // namespace skein

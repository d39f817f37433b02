// Brings an optimizer's state, of which each worker has its shards, to others.
#pragma once

#include <vector>

#include "plan/bucket_plan.h"
#include "strategy/strategy.h"

namespace skein {

// Elements of the plane whose owner changes, or stays.
struct Transfer {
  Range range;
  int from = 0, to = 0;
  bool operator==(const Transfer&) const = default;
};

// The whole plane in pieces of at most `longest` elements, in order, each with the rank of the
// fabric whose shard it lies in under `before` and under `after`. Both plans are of the same arena.
std::vector<Transfer> transfers(const Fabric& fabric, const BucketPlan& before,
                                const BucketPlan& after, std::size_t longest);

// Every worker owns its shards of `before` and afterwards those of `after`, with the same state.
// Each sends what it had and others get, and gives its memory back piece by piece: what a worker
// holds besides its own part, of one vector at a time, is one message. Point to point, on
// `channel`. All workers call it, between steps.
Task<> move_state(Worker& worker, const BucketPlan& before, const BucketPlan& after,
                  Channel channel);

// Shows the state of all shards of `plan` to `take` on rank `to`, as Strategy::stream_state says.
Task<> bring_state(Worker& worker, const BucketPlan& plan, int to, Channel channel,
                   const TakeState& take);

}  // namespace skein

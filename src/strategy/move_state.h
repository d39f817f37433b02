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
  std::size_t now = 0;  // where they begin in the plane afterwards
  bool operator==(const Transfer&) const = default;
};

// The whole plane in pieces of at most `longest` elements, in order, each with the rank of the
// fabric whose shard it lies in under `before` and under `after`. Both plans are of the same arena.
std::vector<Transfer> transfers(const Fabric& fabric, const BucketPlan& before,
                                const BucketPlan& after, std::size_t longest);

// The same where the plane is laid out anew: of the parts of the plane in `placed`, which are in
// its order; `after` is the plan of the new layout.
std::vector<Transfer> transfers(const Fabric& fabric, const BucketPlan& before,
                                const BucketPlan& after, std::size_t longest,
                                const std::vector<Placed>& placed);

// Every worker owns its shards of `before` and afterwards those of `after`, with the same state.
// Each sends what it had and others get, and gives its memory back piece by piece: what a worker
// holds besides its own part, of one vector at a time, is one message. Point to point, on
// `channel`. All workers call it, between steps.
Task<> move_state(Worker& worker, const BucketPlan& before, const BucketPlan& after,
                  Channel channel);

// The same of the transfers that are given, in their order, from a state to that of the worker's
// optimizer, which owns already what it is to have. `from` keeps nothing.
Task<> move_state(Worker& worker, OwnedState& from, const std::vector<Transfer>& all,
                  Channel channel);

// As Strategy::take_over_state() says, where workers own their shards of a plan.
Task<> move_state(Worker& worker, Optimizer& from, const BucketPlan& before,
                  const BucketPlan& after, const std::vector<Placed>& placed, Channel channel);

// Shows the state of all shards of `plan` to `take` on rank `to`, as Strategy::stream_state says.
Task<> bring_state(Worker& worker, const BucketPlan& plan, int to, Channel channel,
                   const TakeState& take);

}  // namespace skein

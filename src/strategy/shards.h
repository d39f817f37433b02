// Each worker's part of every bucket.
#pragma once

#include <vector>

#include "fabric/fabric.h"
#include "plan/bucket_plan.h"
#include "strategy/worker.h"

namespace skein {

// Where the part of the bucket lies in the plane that rank `rank` of the fabric holds.
Range shard_of(const Fabric& fabric, const BucketPlan& plan, int bucket, int rank);

// The shards of all buckets in the order in which they lie in the plane.
std::vector<Range> shards_of(const Fabric& fabric, const BucketPlan& plan, int rank);

// Of the plane's elements in rank `rank`'s shards, one norm for each bucket. Added up over the
// ranks in their order it is the squared norm of the plane, with the same bits whoever adds.
Task<double> squared_norm_of_shards(Worker& worker, Span plane, const BucketPlan& plan, int rank);

}  // namespace skein

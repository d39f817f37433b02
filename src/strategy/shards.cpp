#include "strategy/shards.h"

#include "kernels/kernels.h"

namespace skein {

Range shard_of(const Fabric& fabric, const BucketPlan& plan, int bucket, int rank) {
  const Range whole = plan.range(bucket);
  const Range part = fabric.part(whole.count, rank);
  return {whole.offset + part.offset, part.count};
}

std::vector<Range> shards_of(const Fabric& fabric, const BucketPlan& plan, int rank) {
  std::vector<Range> ranges;
  for (int bucket = plan.count() - 1; bucket >= 0; --bucket)  // the last lies first
    ranges.push_back(shard_of(fabric, plan, bucket, rank));
  return ranges;
}

Task<double> squared_norm_of_shards(Worker& worker, Span plane, const BucketPlan& plan, int rank) {
  std::vector<Figure> parts;
  parts.reserve(static_cast<std::size_t>(plan.count()));
  for (int bucket = 0; bucket < plan.count(); ++bucket)
    parts.push_back(squared_norm(plane.at(shard_of(worker.fabric(), plan, bucket, rank))));
  double norm = 0;
  for (const Figure& part : parts) norm += co_await worker.value_of(part);
  co_return norm;
}

}  // namespace skein

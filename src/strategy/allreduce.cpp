#include "strategy/allreduce.h"

namespace skein {

Task<> AllReduce::sum(int bucket) {
  const Time begin = worker_.loop().now();
  co_await worker_.fabric().all_reduce(worker_.channel(kGradients), gradients(plan().range(bucket)),
                                       worker_.limit(), wire());
  trace_turn(Lane::all_reduce, bucket, begin, sums_free_);
}

Task<> AllReduce::apply(UpdateContext context) {
  if (worker_.wants_norm() && !context.skip) {
    co_await all_summed();
    const Worker::SquaredNorm norm = [this] { return squared_norm_of_sum(); };
    co_await worker_.prepare(context, norm);
  }
  for (int bucket = 0; bucket < plan().count(); ++bucket) {
    co_await summed(bucket);
    co_await worker_.update(plan().range(bucket), context);
  }
  if (context.skip) co_return;
  ++worker_.progress.steps;
  worker_.model_updated();
}

}  // namespace skein

#include "strategy/allreduce.h"

#include "strategy/shards.h"

namespace skein {

AllReduce::Options::Options(const std::map<std::string, std::string>& options) {
  OptionReader reader("allreduce", options);
  static_cast<Synchronous::Options&>(*this) = Synchronous::Options(reader);
  reader.finish();
}

Task<> AllReduce::sum(int bucket) {
  const Time begin = worker_.loop().now();
  co_await worker_.fabric().all_reduce(worker_.channel(kGradients), gradients(plan().range(bucket)),
                                       worker_.limit(), wire());
  trace_turn(Lane::all_reduce, bucket, begin, sums_free_);
}

Task<> AllReduce::apply(UpdateContext context) {
  if (worker_.wants_norm()) {
    co_await all_summed();
    const Worker::SquaredNorm norm = [this] { return squared_norm_of_sum(); };
    co_await worker_.prepare(context, norm);
  }
  for (int bucket = 0; bucket < plan().count(); ++bucket) {
    co_await summed(bucket);
    co_await worker_.update(plan().range(bucket), context);
  }
  if (!context.skip) ++worker_.progress.steps;
}

// Shard by shard, as workers that hold one shard each would add it up: the same bits.
Task<double> AllReduce::squared_norm_of_sum() const {
  double total = 0;
  for (int rank = 0; rank < worker_.size(); ++rank)
    total += co_await squared_norm_of_shards(worker_, worker_.arena().gradients(), plan(), rank);
  co_return total;
}

}  // namespace skein

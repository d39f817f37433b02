#include "strategy/dear.h"

#include <fmt/format.h>

#include "kernels/kernels.h"
#include "optimize/clip.h"
#include "schedule/exact.h"
#include "strategy/shards.h"

namespace skein {

Dear::Options::Options(const std::map<std::string, std::string>& options) {
  OptionReader reader("dear", options);
  static_cast<Synchronous::Options&>(*this) = Synchronous::Options(reader);
  reader.finish();
}

Dear::Dear(Worker& worker, const Options& options)
    : Synchronous(worker, options),
      changed_(worker.loop()),
      pending_(static_cast<std::size_t>(plan().count()), false),
      norms_(worker.fabric().allocate(static_cast<std::size_t>(worker.size()) * kExactParts)) {
  worker.optimizer().own(shards_of(plan(), worker.size(), worker.rank()));
}

Range Dear::own_shard(int bucket) const {
  return shard_of(plan(), bucket, worker_.size(), worker_.rank());
}

Task<> Dear::sum(int bucket) {
  const Time begin = worker_.loop().now();
  co_await worker_.fabric().reduce_scatter(kGradients, gradients(plan().range(bucket)),
                                           worker_.deadline());
  worker_.trace().span(Lane::reduce_scatter, fmt::format("bucket {}", bucket), begin,
                       worker_.loop().now());
}

// What this forward has not read may still be on its way.
Task<> Dear::begin_step(std::int64_t samples) {
  co_await flush();
  co_await Synchronous::begin_step(samples);
}

Task<> Dear::end_step(std::int64_t samples) {
  UpdateContext context = co_await end_backward(samples);
  ++worker_.progress.steps;
  pending_.assign(pending_.size(), true);
  gathers_.clear();
  if (worker_.size() == 1)
    co_await update_all(context);
  else
    updating_ = ScopedJob(worker_.loop().spawn(update_and_gather(context)));
}

Task<> Dear::update_and_gather(UpdateContext context) {
  try {
    co_await update_all(context);
  } catch (...) {
    failed();
  }
}

// In the order in which the next forward reads: the last bucket lies first in the arena.
Task<> Dear::update_all(UpdateContext& context) {
  if (worker_.clip() > 0) co_await clip(context);
  for (int bucket = plan().count() - 1; bucket >= 0; --bucket) {
    co_await summed(bucket);
    const Range whole = plan().range(bucket), own = own_shard(bucket);
    co_await worker_.update(own, context);  // leaves the gradients of the shard zero
    fill(gradients({whole.offset, own.offset - whole.offset}), 0);
    fill(gradients({own.end(), whole.end() - own.end()}), 0);
    if (worker_.size() == 1)
      arrived(bucket);
    else
      gathers_.emplace_back(worker_.loop().spawn(gather(bucket)));
  }
}

Task<> Dear::gather(int bucket) {
  try {
    const Time begin = worker_.loop().now();
    co_await worker_.fabric().all_gather(
        kParameters, worker_.arena().parameters().at(plan().range(bucket)), worker_.deadline());
    worker_.trace().span(Lane::all_gather, fmt::format("bucket {}", bucket), begin,
                         worker_.loop().now());
    arrived(bucket);
  } catch (...) {
    failed();
  }
}

// One exact number from each worker, added up in the order of ranks as AllReduce does.
Task<> Dear::clip(UpdateContext& context) {
  co_await all_summed();
  const Span table = norms_->span();
  fill(table, 0);
  const double own =
      squared_norm_of_shards(worker_.arena().gradients(), plan(), worker_.size(), worker_.rank());
  put_exact(table.at(exact_place(worker_.rank())), own);
  co_await worker_.fabric().all_reduce_small(kNorm, table, worker_.deadline());
  double total = 0;
  for (int rank = 0; rank < worker_.size(); ++rank) total += get_exact(table.at(exact_place(rank)));
  context.gradient_scale = clipped(context.gradient_scale, total, worker_.clip());
}

void Dear::arrived(int bucket) {
  pending_[static_cast<std::size_t>(bucket)] = false;
  changed_.notify_all();
}

void Dear::failed() {
  if (!error_) error_ = std::current_exception();
  changed_.notify_all();
}

Task<> Dear::need(int bucket) {
  while (pending_[static_cast<std::size_t>(bucket)]) {
    if (error_) std::rethrow_exception(error_);
    co_await changed_.wait();
  }
}

Task<> Dear::flush() {
  for (int bucket = 0; bucket < plan().count(); ++bucket) co_await need(bucket);
}

Task<> Dear::whole_state(OptimizerState& state) {
  co_await flush();
  co_await Strategy::whole_state(state);
  for (const auto& [name, plane] : state)
    for (int bucket = 0; bucket < plan().count(); ++bucket)
      co_await worker_.fabric().all_gather(kState, plane->span().at(plan().range(bucket)),
                                           worker_.deadline());
}

}  // namespace skein

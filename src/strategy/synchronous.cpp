#include "strategy/synchronous.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fabric/rows.h"
#include "kernels/kernels.h"
#include "plan/shares.h"
#include "skein/error.h"
#include "strategy/shards.h"

namespace skein {
namespace {

// A new split must promise at least this: batches that change size at every breath cost more (the
// kernels of a new size are prepared anew) than a per cent gains.
constexpr double kWorthwhile = 0.97;

// How long the slowest worker would take.
double longest(const std::vector<std::int64_t>& shares, const std::vector<double>& speeds) {
  double time = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    time = std::max(time, static_cast<double>(shares[i]) / speeds[i]);
  return time;
}

}  // namespace

Synchronous::Options::Options(OptionReader& reader)
    : fusion(parse_fusion(reader.text("fusion", "auto", "auto|none|SIZE",
                                      "size of the buckets in which gradients travel"))),
      balance(reader.flag("balance", false,
                          "share each global batch in proportion to measured speeds")),
      overlap(reader.flag("overlap", true, "send gradients while backward goes on")),
      wire(reader.choice<Wire>("wire", {{"f32", Wire::f32}, {"bf16", Wire::bf16}},
                               "type of what travels, as --wire")),
      reorder(reader.flag("reorder", true,
                          "lay parameters out in the order in which the first forward read them")) {
}

Synchronous::Synchronous(Worker& worker, const StrategyTraits& traits, const Options& options)
    : Strategy(worker, traits),
      options_(options),
      plan_(worker.arena(), options_.fusion),
      table_(worker, worker.channel(kTable), options_.balance) {
  behaviour_.sends_in_backward = options_.overlap && worker.size() > 1;
  behaviour_.wants_order_of_reads = options_.reorder && worker.size() > 1;
}

std::vector<std::int64_t> Synchronous::split(std::int64_t samples) {
  const auto& speeds = table_.speeds();
  if (!options_.balance || speeds.empty()) return Strategy::split(samples);
  auto fresh = proportional_shares(samples, speeds);
  std::int64_t last = 0;
  for (const std::int64_t share : shares_) last += share;
  if (shares_.empty() || last != samples ||
      longest(fresh, speeds) < kWorthwhile * longest(shares_, speeds))
    shares_ = std::move(fresh);
  return shares_;
}

Task<> Synchronous::begin_step(std::int64_t samples) {
  next_ = 0;
  ready_.assign(static_cast<std::size_t>(plan_.count()), false);
  sums_.clear();
  in_step_ = true;
  // Without overlap nothing is weighted before the number of samples is known for certain.
  sending_ = samples != kUnknown && options_.overlap;
  if (sending_) table_.start(samples);
  co_return;
}

void Synchronous::gradient_ready(int bucket) {
  ready_[static_cast<std::size_t>(bucket)] = true;
  if (sending_) sum_ready_buckets();
}

void Synchronous::sum_ready_buckets() {
  for (; next_ < plan_.count() && ready_[static_cast<std::size_t>(next_)]; ++next_)
    sums_.emplace_back(worker_.loop().spawn(weigh_and_sum(next_)));
}

// A discarded gradient may hold anything: 0 · infinity would not be 0.
Task<> Synchronous::weigh_and_sum(int bucket) {
  if (table_.own_weight() == 0)
    fill(gradients(plan_.range(bucket)), 0);
  else if (table_.own_weight() != 1)
    scale(gradients(plan_.range(bucket)), table_.own_weight());
  if (worker_.size() > 1) co_await sum(bucket);
}

void Synchronous::sum_all_buckets() {
  ready_.assign(ready_.size(), true);
  sum_ready_buckets();
}

Task<> Synchronous::end_step(std::int64_t samples) {
  if (!table_.started()) table_.start(samples);
  table_.record(samples);
  sum_all_buckets();
  in_step_ = false;
  // Before the table moves progress on, and after it took the last step's decision.
  UpdateContext context = worker_.next_update();
  co_await table_.finish();
  co_await apply_sums(context);
}

Task<> Synchronous::apply_sums(UpdateContext context) {
  context.gradient_scale = table_.gradient_scale();
  context.skip = table_.nobody_has_samples();
  co_await apply(context);
}

// While others make steps this worker has no samples in them. It hears of a step before it sends
// anything, so nothing but the table travels when all are here. In the middle of a step nobody can
// be waited for: the table belongs to the step.
Task<> Synchronous::flush() {
  while (worker_.size() > 1 && !in_step_) {
    table_.start(0, true);
    UpdateContext context = worker_.next_update();
    co_await table_.finish();
    if (table_.all_wait()) co_return;
    co_await begin_step(kUnknown);
    in_step_ = false;
    fill(worker_.arena().gradients(), 0);
    sum_all_buckets();
    co_await apply_sums(context);
  }
}

// One exact number from each worker, added up in the order of ranks.
Task<double> Synchronous::squared_norm_of_sum() {
  const double own =
      co_await squared_norm_of_shards(worker_, worker_.arena().gradients(), plan_, worker_.rank());
  Rows norms(worker_.size(), sizeof(own));
  norms.put(worker_.rank(), std::as_bytes(std::span(&own, 1)));
  const Merge merge = norms.merge();
  co_await worker_.fabric().combine(worker_.channel(kNorm), norms.record(), merge, worker_.limit());
  double total = 0;
  for (int rank = 0; rank < worker_.size(); ++rank) {
    double each = 0;
    std::memcpy(&each, norms.row(rank).value().data(), sizeof(each));
    total += each;
  }
  co_return total;
}

void Synchronous::trace_turn(Lane lane, int bucket, Time begin, Time& free) {
  const Time from = std::max(begin, free);
  free = worker_.loop().now();
  worker_.trace().span(lane, fmt::format("bucket {}", bucket), from, free);
}

// Sums take turns: when one fails those after it fail for that, and the first one says why.
Task<> Synchronous::summed(int bucket) const {
  try {
    co_await sums_[static_cast<std::size_t>(bucket)]->join();
  } catch (const Error&) {
    for (const ScopedJob& sum : sums_)
      if (sum->done()) sum->rethrow();
    throw;
  }
}

Task<> Synchronous::all_summed() const {
  for (const ScopedJob& sum : sums_) co_await sum->join();
}

}  // namespace skein

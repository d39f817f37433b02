#include "strategy/allreduce.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "optimize/clip.h"
#include "schedule/shares.h"
#include "strategy/option_reader.h"

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

AllReduce::Options::Options(const std::map<std::string, std::string>& options) {
  OptionReader reader("allreduce", options);
  fusion = parse_fusion(reader.text("fusion", "auto"));
  balance = reader.flag("balance", false);
  overlap = reader.flag("overlap", true);
  reader.finish();
}

AllReduce::AllReduce(Worker& worker, Options options)
    : Strategy(worker),
      options_(options),
      plan_(worker.arena(), options_.fusion),
      table_(worker, kTable) {}

std::vector<std::int64_t> AllReduce::split(std::int64_t samples) {
  const auto& speeds = table_.speeds();
  if (!options_.balance || speeds.empty()) return Strategy::split(samples);
  auto fresh = proportional_shares(samples, speeds);
  std::int64_t last = 0;
  for (const std::int64_t share : shares_) last += share;
  if (last != samples || longest(fresh, speeds) < kWorthwhile * longest(shares_, speeds))
    shares_ = std::move(fresh);
  return shares_;
}

Task<> AllReduce::begin_step(std::int64_t samples) {
  next_ = 0;
  ready_.assign(static_cast<std::size_t>(plan_.count()), false);
  averages_.clear();
  sending_ = samples != kUnknown && options_.overlap;
  if (samples != kUnknown) table_.start(samples);
  co_return;
}

void AllReduce::gradient_ready(int bucket) {
  ready_[static_cast<std::size_t>(bucket)] = true;
  if (sending_) send_ready_buckets();
}

void AllReduce::send_ready_buckets() {
  for (; next_ < plan_.count() && ready_[static_cast<std::size_t>(next_)]; ++next_)
    averages_.emplace_back(worker_.loop().spawn(average(next_)));
}

Task<> AllReduce::average(int bucket) {
  const Span gradients = worker_.arena().gradients().at(plan_.range(bucket));
  if (table_.own_weight() != 1) scale(gradients, table_.own_weight());
  if (worker_.size() == 1) co_return;
  const Time begin = worker_.loop().now();
  co_await worker_.fabric().all_reduce(kGradients, gradients, worker_.deadline());
  worker_.trace().span(Lane::all_reduce, fmt::format("bucket {}", bucket), begin,
                       worker_.loop().now());
}

Task<> AllReduce::end_step(std::int64_t samples) {
  if (!table_.started()) table_.start(samples);
  table_.record(samples);
  ready_.assign(ready_.size(), true);
  send_ready_buckets();
  UpdateContext context{.learning_rate = worker_.learning_rate(),
                        .step = worker_.progress.steps + 1};
  co_await table_.finish();
  const double average = table_.total_weight() > 0 ? 1 / table_.total_weight() : 0;
  context.gradient_scale = static_cast<float>(average);
  if (worker_.clip() > 0) {
    for (const ScopedJob& sum : averages_) co_await sum->join();
    context.gradient_scale *= clip_scale(squared_norm_of_sum() * average * average, worker_.clip());
  }
  for (int bucket = 0; bucket < plan_.count(); ++bucket) {
    co_await averages_[static_cast<std::size_t>(bucket)]->join();
    co_await worker_.update(plan_.range(bucket), context);
  }
  ++worker_.progress.steps;
}

// Shard by shard, as workers that hold one shard each would add it up: the same bits.
double AllReduce::squared_norm_of_sum() const {
  double total = 0;
  for (int rank = 0; rank < worker_.size(); ++rank) {
    double part = 0;
    for (int bucket = 0; bucket < plan_.count(); ++bucket) {
      const Range range = plan_.range(bucket);
      const Range mine = shard(range.count, worker_.size(), rank);
      part +=
          squared_norm(worker_.arena().gradients().at({range.offset + mine.offset, mine.count}));
    }
    total += part;
  }
  return total;
}

}  // namespace skein

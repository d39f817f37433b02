#include "torch/data_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/world_impl.h"

namespace skein {

std::int64_t DataCursor::samples_handed_out() const {
  if (!handed_out())
    throw ConfigError(
        "step() without a number of samples: expected a loop over share(), and one step() for each "
        "of its batches");
  return handed_out_;
}

std::int64_t DataCursor::number_epochs(const ShareOptions& options) {
  const std::int64_t first = options.first_epoch.value_or(next_epoch_);
  next_epoch_ = first + options.epochs;
  return first;
}

std::int64_t DataCursor::pass_over(std::int64_t dataset_size, const ShareOptions& options) {
  const std::int64_t done = worker_.progress.samples, samples = dataset_size * options.epochs;
  if (resumed_ < 0) resumed_ = done;
  const std::int64_t before =
      options.first_epoch && resumed_ > 0
          ? std::max<std::int64_t>(0, done - *options.first_epoch * dataset_size)
          : resumed_;
  const std::int64_t passed = std::min(before, samples);
  resumed_ = before - passed;
  // This is right where the program's loops begin with the run's first, and else a surprise.
  if (!options.first_epoch && passed == samples && passed > 0 &&
      !std::exchange(said_passed_over_, true) && world_.rank() == world_.impl().leader())
    fmt::print(
        stderr,
        "skein: a loop over share() is passed over: the run was resumed after all of its "
        "samples. One that begins with a later epoch says so by ShareOptions::first_epoch\n");
  return passed;
}

void DataCursor::open(const FeedPlan& plan, std::int64_t begin) {
  feed_.reset();
  if (begin < plan.total)
    feed_ = std::make_unique<Feed>(world_, worker_.queue_channel(), plan, Feed::after(plan, begin));
  in_loop_ = true;
}

}  // namespace skein

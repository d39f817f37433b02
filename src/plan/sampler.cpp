#include "plan/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "core/rng.h"
#include "skein/error.h"

namespace skein {

GlobalBatches::GlobalBatches(std::uint32_t dataset_size, std::int64_t global_batch,
                             std::uint64_t seed, bool shuffle)
    : dataset_size_(dataset_size), global_batch_(global_batch), seed_(seed), shuffle_(shuffle) {
  SKEIN_CHECK(dataset_size > 0, "an empty data set has no batches");
  SKEIN_CHECK(global_batch > 0, "global batch of {}", global_batch);
}

void GlobalBatches::seek(Position position) {
  if (position.epoch < 0 || position.offset < 0 || position.offset >= dataset_size_)
    throw ConfigError(
        fmt::format("data position epoch {} offset {}: expected an epoch of at least 0 and an "
                    "offset from 0 to {}, as the data set has {} samples",
                    position.epoch, position.offset, dataset_size_ - 1, dataset_size_));
  position_ = position;
}

std::span<const std::uint32_t> GlobalBatches::next(std::int64_t limit) {
  SKEIN_CHECK(limit > 0, "limit of {} samples", limit);
  // Made here and not when an epoch ends, so that the epoch's last span stays good.
  if (!shuffle_ && order_.empty()) {
    order_.resize(static_cast<std::size_t>(dataset_size_));
    std::iota(order_.begin(), order_.end(), 0u);
  }
  if (shuffle_ && order_epoch_ != position_.epoch) {
    order_ = Rng(seed_)
                 .split(static_cast<std::uint64_t>(position_.epoch))
                 .permutation(static_cast<std::uint32_t>(dataset_size_));
    order_epoch_ = position_.epoch;
  }
  const std::int64_t count = std::min({global_batch_, dataset_size_ - position_.offset, limit});
  const auto batch = std::span<const std::uint32_t>(order_).subspan(
      static_cast<std::size_t>(position_.offset), static_cast<std::size_t>(count));
  position_.offset += count;
  if (position_.offset == dataset_size_) position_ = {position_.epoch + 1, 0};
  return batch;
}

NumberedBatches::NumberedBatches(std::int64_t dataset_size, std::int64_t batch, std::int64_t budget)
    : dataset_size_(dataset_size), batch_(batch), budget_(budget) {
  SKEIN_CHECK(dataset_size > 0 && batch > 0 && budget > 0, "{} samples in batches of {}, budget {}",
              dataset_size, batch, budget);
  const auto batches_of = [&](std::int64_t samples) { return (samples + batch - 1) / batch; };
  per_epoch_ = batches_of(dataset_size);
  count_ = budget / dataset_size * per_epoch_ + batches_of(budget % dataset_size);
}

GlobalBatches::Position NumberedBatches::position(std::int64_t number) const {
  SKEIN_CHECK(number >= 0 && number < count_, "batch {} of {}", number, count_);
  return {number / per_epoch_, number % per_epoch_ * batch_};
}

std::int64_t NumberedBatches::samples(std::int64_t number) const {
  const auto [epoch, offset] = position(number);
  return std::min({batch_, dataset_size_ - offset, budget_ - (epoch * dataset_size_ + offset)});
}

}  // namespace skein

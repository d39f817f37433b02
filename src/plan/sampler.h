// Which samples belong to which step and to which worker. No torch here.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace skein {

// Cuts each epoch's random order of the data set into global batches. A global batch holds the same
// samples however many workers share it, so a run's samples depend on the seed alone. Within an
// epoch every sample comes exactly once; the last batch of an epoch is short, never mixed with the
// next epoch's.
// Not thread-safe. Every worker keeps one of its own and makes the same calls.
class GlobalBatches {
 public:
  // Both sizes are at least 1; aborts otherwise.
  // `shuffle`: else every epoch has the data set's own order.
  GlobalBatches(std::uint32_t dataset_size, std::int64_t global_batch, std::uint64_t seed,
                bool shuffle = true);

  // Where the next batch begins: 0 <= offset < dataset size.
  struct Position {
    std::int64_t epoch = 0;
    std::int64_t offset = 0;

    bool operator==(const Position&) const = default;
  };
  Position position() const { return position_; }

  // Continues from there exactly as an uninterrupted run would. ConfigError for a position that
  // this data set does not have: a checkpoint of another one.
  void seek(Position position);

  // The next min(global_batch, rest of the epoch, limit) samples; limit is at least 1. The span is
  // good until the next call of next() or seek().
  std::span<const std::uint32_t> next(
      std::int64_t limit = std::numeric_limits<std::int64_t>::max());

 private:
  std::int64_t dataset_size_;
  std::int64_t global_batch_;
  std::uint64_t seed_;
  bool shuffle_;
  Position position_;
  std::int64_t order_epoch_ = -1;  // the epoch that order_ belongs to
  std::vector<std::uint32_t> order_;
};

// The batches of all epochs, numbered through, up to a budget of samples: for workers that draw
// them from a common queue. The last one ends with the budget.
class NumberedBatches {
 public:
  // All are at least 1; aborts otherwise.
  NumberedBatches(std::int64_t dataset_size, std::int64_t batch, std::int64_t budget);

  std::int64_t count() const { return count_; }

  // Where GlobalBatches finds the batch, and how many samples it has. 0 <= number < count().
  GlobalBatches::Position position(std::int64_t number) const;
  std::int64_t samples(std::int64_t number) const;

 private:
  std::int64_t dataset_size_, batch_, budget_;
  std::int64_t per_epoch_, count_;
};

}  // namespace skein

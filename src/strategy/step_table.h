// What all workers know of each other's step: samples and speeds, exchanged once per step in one
// small message that hides behind the computation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategy/worker.h"

namespace skein {

class StepTable {
 public:
  static constexpr std::size_t kBytes = 304;  // of the message, without speeds

  // With `speeds` everybody learns everybody's speed: without it the message has the same size
  // however many ranks there are.
  StepTable(Worker& worker, Channel channel, bool speeds);

  // Starts the exchange for a step in which this rank expects to compute `samples`. One that makes
  // no step, since it waits for all to come to flush(), says so with `waits`.
  void start(std::int64_t samples, bool waits = false);

  // Waits for it. Then weight() and speeds() are those of the step, and global progress is up to
  // date. Throws ConfigError, the same on all ranks, if in the step before, samples came out in
  // other proportions than were announced: that average was weighted wrongly. Or if before_update()
  // did not decide the same on all ranks.
  Task<> finish();

  // Whether in the last exchange all ranks waited, so that there is no step; or any did.
  bool all_wait() const { return waiting_ == worker_.size(); }
  bool any_waits() const { return waiting_ > 0; }
  bool started() const { return exchange_.valid(); }

  // Whether nobody has samples in the step of the last exchange: then there is nothing to average.
  bool nobody_has_samples() const { return empty_; }

  // Says how many samples this rank really computed; told to the others with the next start().
  // Alone, where there is no next exchange to show it, it throws as finish() would.
  void record(std::int64_t samples);

  // A whole number that rank 0 tells all with the next start(), and the one that came
  // with the last finish(). 0: nothing.
  void tell(std::int64_t number) { told_ = number; }
  std::int64_t told() const { return heard_; }

  // What this rank multiplies its gradients by before they are summed (1 where all are equal), and
  // what the sum is multiplied by.
  float own_weight() const { return own_weight_; }
  float gradient_scale() const {
    return static_cast<float>(total_weight_ > 0 ? 1 / total_weight_ : 0);
  }

  // Samples per second of each rank; empty while not all are known, or nobody asked.
  const std::vector<double>& speeds() const { return speeds_; }

 private:
  // What one rank says, or several of them together; the seconds per sample of each rank follow.
  struct Record;
  static void merge(std::span<std::byte> into, std::span<const std::byte> from);
  static Record header_of(std::span<const std::byte> record);

  Record own_record(std::int64_t samples, bool waits);
  void check_last_step(const Record& all) const;
  void check_decisions(const Record& all) const;
  [[noreturn]] void refuse(const Record& all) const;
  void read(const Record& all);

  Worker& worker_;
  Channel channel_;
  Merge merge_;
  std::vector<std::byte> record_;
  ScopedJob exchange_;
  std::int64_t expected_ = 0;  // of this rank, as announced for the step under way
  std::int64_t computed_ = 0;
  std::int64_t last_expected_ = 0;  // as announced for the step before
  std::int64_t told_ = 0, heard_ = 0;
  int waiting_ = 0;
  bool empty_ = false;
  float unit_ = 1;  // samples that weigh 1 in this step
  float own_weight_ = 1;
  double total_weight_ = 1;
  std::vector<double> speeds_;
};

}  // namespace skein

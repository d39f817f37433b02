// What all workers know of each other's step: samples and speeds, exchanged once per step in one
// small message that hides behind the computation.
#pragma once

#include <cstdint>
#include <vector>

#include "core/exact_count.h"
#include "strategy/worker.h"

namespace skein {

class StepTable {
 public:
  StepTable(Worker& worker, Channel channel);

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

  // Says how many samples this rank really computed; told to the others with the next start().
  // Alone, where there is no next exchange to show it, it throws as finish() would.
  void record(std::int64_t samples);

  // A whole number (below 2^24) that rank 0 tells all with the next start(), and the one that came
  // with the last finish(). 0: nothing.
  void tell(std::int64_t number) { told_ = number; }
  std::int64_t told() const { return heard_; }

  // What this rank multiplies its gradients by before they are summed (1 where all are equal), and
  // what the sum is multiplied by.
  float own_weight() const { return own_weight_; }
  float gradient_scale() const {
    return static_cast<float>(total_weight_ > 0 ? 1 / total_weight_ : 0);
  }

  // Samples per second of each rank; empty while not all are known.
  const std::vector<double>& speeds() const { return speeds_; }

 private:
  // One rank's row. Counts take two columns each.
  enum Column : std::size_t {
    kExpected,
    kComputed = kExpected + kCountParts,
    kSecondsPerSample = kComputed + kCountParts,
    kFlags,
    kTold,
    kDecision,
    kColumns
  };

  // In kFlags, added up.
  enum Flag : int { kStop = 1, kWaits = 2 };

  float& cell(int rank, Column column) {
    return memory_->span()[static_cast<std::size_t>(rank) * kColumns + column];
  }
  Span count(int rank, Column column) const {
    return memory_->span().at({static_cast<std::size_t>(rank) * kColumns + column, kCountParts});
  }
  void check_last_step();
  void check_decisions();
  [[noreturn]] void refuse(const std::vector<std::int64_t>& announced,
                           const std::vector<std::int64_t>& computed) const;
  void read_rows();

  Worker& worker_;
  Channel channel_;
  std::unique_ptr<Memory> memory_;
  ScopedJob exchange_;
  std::int64_t computed_ = 0;
  std::int64_t told_ = 0, heard_ = 0;
  int waiting_ = 0;
  std::vector<std::int64_t> last_expected_;  // of all ranks, in the step before
  float unit_ = 1;                           // samples that weigh 1 in this step
  float own_weight_ = 1;
  double total_weight_ = 1;
  std::vector<double> speeds_;
};

}  // namespace skein

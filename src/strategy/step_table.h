// What all workers know of each other's step: samples and speeds, exchanged once per step in one
// small message that hides behind the computation.
#pragma once

#include <cstdint>
#include <vector>

#include "strategy/worker.h"

namespace skein {

class StepTable {
 public:
  StepTable(Worker& worker, Channel channel);

  // Starts the exchange for a step in which this rank expects to compute `samples`.
  void start(std::int64_t samples);

  // Waits for it. Then weight() and speeds() are those of the step, and global progress is up to
  // date. Throws ConfigError, on all ranks, if in the step before, samples came out in other
  // proportions than were announced: that average was weighted wrongly.
  Task<> finish();
  bool started() const { return exchange_.valid(); }

  // Says how many samples this rank really computed; told to the others with the next start().
  void record(std::int64_t samples) { computed_ = samples; }

  // A whole number (below 2^24) that rank 0 tells all with the next start(), and the one that came
  // with the last finish(). 0: nothing.
  void tell(std::int64_t number) { told_ = number; }
  std::int64_t told() const { return heard_; }

  // What this rank multiplies its gradients by before they are summed (1 where all are equal), and
  // what the sum is divided by.
  float own_weight() const { return own_weight_; }
  double total_weight() const { return total_weight_; }

  // Samples per second of each rank; empty while not all are known.
  const std::vector<double>& speeds() const { return speeds_; }

 private:
  // One rank's row.
  enum Column : std::size_t { kExpected, kComputed, kSecondsPerSample, kStop, kTold, kColumns };

  float& cell(int rank, Column column) {
    return memory_->span()[static_cast<std::size_t>(rank) * kColumns + column];
  }
  void check_last_step();

  Worker& worker_;
  Channel channel_;
  std::unique_ptr<Memory> memory_;
  ScopedJob exchange_;
  std::int64_t computed_ = 0;
  std::int64_t told_ = 0, heard_ = 0;
  std::vector<double> last_expected_;  // of all ranks, in the step before
  float unit_ = 1;                     // samples that weigh 1 in this step
  float own_weight_ = 1;
  double total_weight_ = 1;
  std::vector<double> speeds_;
};

}  // namespace skein

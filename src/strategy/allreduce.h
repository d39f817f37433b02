// Synchronous SGD: gradients are averaged over all workers, bucket by bucket, while backward goes
// on.
//
// The average is weighted by samples. Buckets are sent in one fixed order, so that workers whose
// gradients come in different orders, or not at all, still agree.
#pragma once

#include <vector>

#include "strategy/step_table.h"
#include "strategy/strategy.h"

namespace skein {

class AllReduce final : public Strategy {
 public:
  struct Options {
    Fusion fusion;  // fusion = auto | none | SIZE
    bool balance =
        false;            // shares of the global batch proportional to each worker's measured speed
    bool overlap = true;  // false: send nothing before backward has ended

    Options() = default;
    explicit Options(const std::map<std::string, std::string>& options);
  };

  AllReduce(Worker& worker, Options options);

  const BucketPlan& plan() const override { return plan_; }
  std::vector<std::int64_t> split(std::int64_t samples) override;
  Task<> begin_step(std::int64_t samples) override;
  void gradient_ready(int bucket) override;
  Task<> end_step(std::int64_t samples) override;

 private:
  enum : Channel { kGradients, kTable };

  void send_ready_buckets();
  Task<> average(int bucket);
  double squared_norm_of_sum() const;

  Options options_;
  BucketPlan plan_;
  StepTable table_;
  bool sending_ = false;  // this step's weight is known
  int next_ = 0;          // the bucket to be sent next
  std::vector<bool> ready_;
  std::vector<ScopedJob> averages_;   // one per bucket sent in this step
  std::vector<std::int64_t> shares_;  // the last split, kept while it is good enough
};

}  // namespace skein

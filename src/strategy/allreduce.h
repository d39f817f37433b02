// Synchronous SGD: gradients are averaged over all workers, bucket by bucket, while backward goes
// on, and every worker makes the same update.
#pragma once

#include "strategy/synchronous.h"

namespace skein {

class AllReduce final : public Synchronous {
 public:
  struct Options : Synchronous::Options {
    Options() = default;
    explicit Options(const std::map<std::string, std::string>& options);
  };

  AllReduce(Worker& worker, const Options& options) : Synchronous(worker, options) {}

 private:
  Task<> apply(UpdateContext context) override;
  Task<> sum(int bucket) override;
  Task<double> squared_norm_of_sum() const;

  Time sums_free_{};
};

}  // namespace skein

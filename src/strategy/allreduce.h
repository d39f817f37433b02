// Synchronous SGD: gradients are averaged over all workers, bucket by bucket, while backward goes
// on, and every worker makes the same update.
#pragma once

#include "strategy/synchronous.h"

namespace skein {

class AllReduce final : public Synchronous {
 public:
  static constexpr StrategyTraits kTraits{
      .waits_for = "all for the slowest and the network, every step",
      .updates = "synchronous SGD",
      .does = "sums gradients while backward goes on",
      .letter = 'A'};

  AllReduce(Worker& worker, const Options& options) : Synchronous(worker, kTraits, options) {}

 private:
  Task<> apply(UpdateContext context) override;
  Task<> sum(int bucket) override;

  Time sums_free_{};
};

}  // namespace skein

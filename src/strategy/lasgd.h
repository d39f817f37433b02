// LASGD: locally asynchronous SGD with all-reduced models. Every worker makes local steps without a
// pause while the models are averaged in the background, round after round. What a round changed is
// added to a model that has moved on meanwhile, so no local step is lost:
//
//   s = copy of x;   a = mean over workers of s;   at the next step boundary: x += a − s
//
// Slow workers and slow networks make rounds longer, never the steps.
#pragma once

#include "strategy/local_steps.h"
#include "strategy/option_reader.h"

namespace skein {

// Memory: two planes, s and a.
class Lasgd final : public LocalSteps {
 public:
  struct Options {
    std::int64_t period = 1;        // local steps from a merge to the next round
    Duration period_time{};         // or, if positive, the time (period_ms)
    std::int64_t warmup = 0;        // the first so many samples by synchronous SGD
    bool average_momentum = false;  // the optimizer's state too; one more plane for each vector
    double outer_momentum = 0;      // of the mean of the models (outer_momentum.h); two more planes

    Options() = default;
    explicit Options(OptionReader& reader);
  };

  static constexpr StrategyTraits kTraits{
      .waits_for = "nobody",
      .updates = "local steps, and the mean of the models added in the background",
      .does = "averages models in the background and never waits",
      .lockstep = false,
      .equal_replicas = false,
      .synchronous = false,
      .repeats = false,
      .planes = 2,
      .letter = 'L'};

  Lasgd(Worker& worker, const Options& options);

  Task<> end_step(std::int64_t samples) override;

 private:
  bool due() const;

  Options options_;
};

}  // namespace skein

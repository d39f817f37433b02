// Local SGD, the blocking relative of `lasgd`: every worker makes `period` steps of its own, then
// all wait for each other and go on from the mean of their models.
#pragma once

#include "strategy/local_steps.h"
#include "strategy/option_reader.h"

namespace skein {

// Memory: one plane, for the mean.
class Local final : public LocalSteps {
 public:
  struct Options {
    std::int64_t period = 8;    // local steps between two averages
    double outer_momentum = 0;  // of the mean of the models (outer_momentum.h); two more planes
    Options() = default;
    explicit Options(OptionReader& reader);
  };

  static constexpr StrategyTraits kTraits{.waits_for = "all for the slowest, every `period` steps",
                                          .updates = "local steps, then the mean of the models",
                                          .does = "meets the others only every few steps",
                                          .lockstep = false,
                                          .equal_replicas = false,
                                          .synchronous = false,
                                          .planes = 1,
                                          .price = 1,
                                          .letter = 'O'};

  Local(Worker& worker, const Options& options);

  Task<> end_step(std::int64_t samples) override;

 private:
  Options options_;
};

}  // namespace skein

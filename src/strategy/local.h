// Local SGD, the blocking relative of `lasgd`: every worker makes `period` steps of its own, then
// all wait for each other and go on from the mean of their models.
#pragma once

#include <map>
#include <string>

#include "strategy/local_steps.h"

namespace skein {

// Memory: one plane, for the mean.
class Local final : public LocalSteps {
 public:
  struct Options {
    std::int64_t period = 8;    // local steps between two averages
    double outer_momentum = 0;  // of the mean of the models (outer_momentum.h); two more planes
    Options() = default;
    explicit Options(const std::map<std::string, std::string>& options);
  };

  Local(Worker& worker, const Options& options);

  Task<> end_step(std::int64_t samples) override;

 private:
  Options options_;
};

}  // namespace skein

// What the options of `train` and `simulate` say about one run of a comparison.
#pragma once

#include <string>
#include <vector>

#include "compare/entries.h"

namespace skein {

// Reads runs of `kind`, which is "train" or "simulate", as that command would.
class CompareJobs {
 public:
  explicit CompareJobs(std::string kind) : kind_(std::move(kind)) {}

  struct Checked {
    std::string strategy;
    int workers = 0;
    double learning_rate = 0;
    double target_accuracy = 0;  // 0: none
    double summed_speed = 0;     // samples/s if nobody ever waited; 0: nobody knows
  };

  compare::KnownOptions known() const;

  // The options that these words give. ConfigError: an option that there is not, with near matches,
  // or one that the comparison itself gives to every run.
  compare::Job given(const std::vector<std::string>& words) const;

  // All that the command checks before it starts workers; `arguments` without its name. Makes the
  // folder that --out names, and of no run more than that.
  Checked check(const std::vector<std::string>& arguments) const;

 private:
  Checked check_train(const std::vector<std::string>& arguments) const;
  Checked check_simulate(const std::vector<std::string>& arguments) const;

  std::string kind_;
};

}  // namespace skein

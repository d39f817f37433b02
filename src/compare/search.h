// A few short trials of learning rate and momentum, as many for every entry, so that nobody wins by
// tuning.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "compare/job.h"
#include "compare/run.h"

namespace skein::compare {

struct SearchAxis {
  std::string option;  // "lr" or "momentum"
  std::vector<double> values;
  bool factors = false;  // of what the entry has
};

// "lr=0.3x,1x,3x" (factors), "momentum=0,0.5,0.9" (values), or one after the other with a comma
// between. ConfigError for what is no such text, and for an option that is there twice.
std::vector<SearchAxis> parse_axes(const std::vector<std::string>& texts);

// What is tried of an entry that has `lr` itself: every combination, the last axis fastest.
std::vector<Job> trial_options(const std::vector<SearchAxis>& axes, double lr);

// By what the best trial is chosen.
enum class JudgedBy {
  accuracy,  // at equal samples; without accuracy, by the loss
  time       // to the target; of those that do not reach it, by accuracy
};

struct Trial {
  Job options;
  Run run;
};

struct Search {
  JudgedBy by = JudgedBy::accuracy;
  std::int64_t samples_each = 0;
  std::vector<Trial> trials;
  int chosen = -1;  // none ended well: the entry stays as it is

  double seconds() const;  // what the trials took, start-up included
  Job options() const;     // of the chosen one
};

// The best of the trials that ended well, the first of equals; -1 if none did.
int choose(const std::vector<Trial>& trials, JudgedBy by);

// Options of which the best value is the least or the greatest that was tried: perhaps one beyond
// it is better.
std::vector<std::string> at_the_edge(const Search& search);

nlohmann::json to_json(const Search& search);

}  // namespace skein::compare

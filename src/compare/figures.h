// The figures by which runs are compared.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "compare/spread.h"

namespace skein::compare {

struct Figure {
  enum class Kind { seconds, milliseconds, count, bytes, percent, plain };

  std::string key;    // in JSON
  std::string title;  // of a column
  Kind kind = Kind::plain;
  bool more_is_better = false;
  bool comparable = true;  // between strategies: what belongs to an update is not
};

// Why figures of time are of so many samples.
inline constexpr const char* kWhyPerSamples =
    "Times are per 1,000 samples of all workers together, since an update is one step under some "
    "strategies and a round of several steps under others, as under abs.";

// All of them, in the order of the table's columns.
const std::vector<Figure>& all_figures();
const Figure& figure(const std::string& key);  // one that there is

const char* figure_unit(const Figure& figure);  // "s", "ms", "%" (of a fraction), "B" or ""

// A value as a person reads it: "12.3 s", "97 %", "1.2 GB".
std::string print_value(const Figure& figure, double value);
// A median with the range of the rounds, where there are several: "12.3 s (11.9 to 13.0)".
std::string print_spread(const Figure& figure, const Spread& spread);

using RunFigures = std::map<std::string, double>;  // those that a run has, by key
using RowFigures = std::map<std::string, Spread>;

// What the JSON of a `train` or `simulate` says. `summed_speed` is what its workers would compute
// in a second if nobody ever waited; 0: nobody knows.
RunFigures figures_of(const nlohmann::json& result, double summed_speed);

// Over rounds that ended well. A figure that no round has is left out; a time to the target is
// there when the runs had one, reached or not.
RowFigures figures_over(const std::vector<RunFigures>& rounds, bool target);

}  // namespace skein::compare
